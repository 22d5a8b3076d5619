// The page: header, choice of runs, plots, tables, and how to repeat them.

function drawHeader(payload) {
  const parts = payload.title.split(/(?<=\/)/);  // a long path may break after a slash
  document.getElementById("title").append(...parts.flatMap((part, i) => i ? [element("wbr"), part] : [part]));
  document.getElementById("note").textContent = payload.note;
  const origin = document.getElementById("origin");
  const add = (name, texts) => {
    if (texts.length === 0) return;
    origin.append(element("dt", "", name), ...texts.map(text => element("dd", "", text)));
  };
  const dates = payload.dates;
  add("Machine", payload.machines);
  add("Models", payload.models ? [payload.models] : []);
  add("Measured", dates.length > 1 ? [`${dates[0]} to ${dates[dates.length - 1]}`] : dates);
  add("Commit", payload.commits);
  add("This page", [`foretoken ${payload.made.version} (${payload.made.commit}), ${payload.made.date}`]);
}

function selectOf(name, options, changed) {
  const label = element("label", "", name), select = element("select");
  for (const [value, text] of options) {
    const option = element("option", "", text);
    option.value = value;
    select.append(option);
  }
  select.addEventListener("change", () => changed(select.value));
  label.append(select);
  return label;
}

// Selects for the axes with several values, and for the colours. `changed` gets {index of an axis: text}.
function drawChoice(payload, changed) {
  const form = document.getElementById("choice"), choice = {};
  form.addEventListener("submit", event => event.preventDefault());
  payload.axes.forEach((axis, i) => {
    const values = valuesOf(payload.runs, i);
    if (values.length < 2) return;
    const options = [["", "all"], ...values.map((text, at) => [String(at + 1), text])];
    form.append(selectOf(axis.title, options, at => {
      if (at) choice[i] = values[Number(at) - 1];
      else delete choice[i];
      changed(choice);
    }));
  });
  form.append(selectOf("colours", [["", "as the system"], ["light", "light"], ["dark", "dark"]], theme => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  }));
}

function copyButton(text) {
  const button = element("button", "small", "copy");
  button.type = "button";
  button.addEventListener("click", () => {
    const done = worked => { button.textContent = worked ? "copied" : "select the text to copy it"; };
    if (!navigator.clipboard) done(false);
    else navigator.clipboard.writeText(text).then(() => done(true), () => done(false));
  });
  return button;
}

function saveButton(name, text) {
  const button = element("button", "small", `save ${name}`);
  button.type = "button";
  button.addEventListener("click", () => {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([text], {type: "application/json"}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  return button;
}

function drawCommand(text, meaning) {
  const item = element("li");
  item.append(element("code", "", text), copyButton(text), ...(meaning ? [element("span", "caption", meaning)] : []));
  return item;
}

// A run's document is written out when it is opened: there may be hundreds.
function drawDocument(title, name, value, command) {
  const details = element("details");
  details.append(element("summary", "", title));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const text = `${JSON.stringify(value, null, 1)}\n`, list = element("ul", "commands");
    list.append(drawCommand(command, `with the document below saved as ${name}`));
    details.append(list, saveButton(name, text), element("pre", "", text));
  });
  return details;
}

function drawRepeat(payload) {
  const found = section("repeat", "How to repeat this", "In a checkout of Foretoken:");
  const list = element("ol", "commands"), {document: sweep, lines} = payload.commands;
  for (const {text, meaning} of lines) list.append(drawCommand(text, meaning));
  found.append(list);
  if (sweep)
    found.append(drawDocument("All runs: sweep.json", "sweep.json", sweep,
                              "./foretoken run sweep.json --results again.jsonl"));
  found.append(element("h3", "", "Run by run"));
  for (const run of payload.runs) {
    const name = `run-${run.key.replace(/[^\w-]/g, "") || "document"}.json`;
    found.append(drawDocument(run.error ? `${run.label}: failed` : run.label, name, run.document,
                              `./foretoken run ${name} --results again.jsonl`));
  }
  return found;
}

function drawFailures(payload) {
  const failed = payload.runs.filter(run => run.error);
  if (failed.length === 0) return [];
  const found = section("failed", `${failed.length} failed ${failed.length === 1 ? "run" : "runs"}`);
  const list = element("ul");
  found.classList.add("warning");
  for (const run of failed) list.append(element("li", "", `${run.label}: ${run.error}`));
  found.append(list);
  return [found];
}

// Links to plots, tables and the rest, one list each.
function drawSections(parts) {
  const nav = document.getElementById("sections");
  for (const [name, sections] of parts) {
    const list = element("ul");
    list.append(element("li", "group", name));
    for (const part of sections) {
      const item = element("li"), link = element("a", "", part.querySelector("h2").textContent.replace(/ \(.*\)$/, ""));
      link.href = `#${part.id}`;
      item.append(link);
      list.append(item);
    }
    nav.append(list);
  }
}

// What is best, by how much, and where speculation loses: the first screen.
function drawVerdict(payload) {
  const {lines, table} = payload.verdict, found = document.getElementById("verdict");
  found.append(...lines.map((line, i) => element("p", i ? "" : "first", line)));
  if (table) found.append(drawTable(table, "verdict-table").section);
}

function start(payload) {
  drawHeader(payload);
  drawVerdict(payload);
  const content = document.getElementById("content"), plots = element("div");
  const withNote = table => ({...table, note: table.note === payload.note ? "" : table.note});
  const tables = payload.tables.map((table, i) => drawTable(withNote(table), `table-${i}`));
  const failures = drawFailures(payload), repeat = drawRepeat(payload);
  plots.append(...drawPlots(payload, chosenRuns(payload.runs, {})));
  content.append(...failures, plots, ...tables.map(table => table.section), repeat);
  drawChoice(payload, choice => {
    hideTip();
    plots.replaceChildren(...drawPlots(payload, chosenRuns(payload.runs, choice)));
    const byName = Object.fromEntries(Object.entries(choice).map(([i, text]) => [payload.axes[i].name, text]));
    for (const table of tables) table.narrow(byName);
  });
  drawSections([["Plots", [...plots.children]], ["Tables", tables.map(table => table.section)],
                ["Runs", [...failures, repeat]]]);
  document.documentElement.dataset.drawn = "yes";
}
