// Tables that are sorted by any column, with the keyboard too. This file must not know what the columns mean.

// A cell is a text, [text, sort key], or [text, value, low, high].
function textOf(cell) { return cell === undefined ? "" : Array.isArray(cell) ? cell[0] : cell; }

// What a cell is sorted by; `part`: 1 value, 2 low, 3 high. null: unknown.
function sortKey(cell, part) {
  if (cell === undefined) return null;
  if (!Array.isArray(cell)) return cell === "" ? null : cell;
  return cell[part] === undefined ? null : cell[part];
}

// Unknown cells come last in either direction.
function compareKeys(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return direction * (a - b);
  return direction * String(a).localeCompare(String(b), "en", {numeric: true});
}

// Rows in the order of a column; without one in their own.
function sortedRows(rows, order) {
  if (!order) return rows;
  const key = row => sortKey(row.cells[order.column], order.part);
  return [...rows].sort((a, b) => compareKeys(key(a), key(b), order.direction));
}

// Rows whose axes are as chosen: {title of an axis' column: text}. A table without that column is not narrowed by it.
function chosenRows(table, choice) {
  const places = Object.entries(choice).map(([name, text]) => [table.columns.findIndex(c => c.name === name), text])
    .filter(([place]) => place >= 0);
  return table.rows.filter(row => places.every(([place, text]) => textOf(row.cells[place]) === text));
}

// Ascending, descending, as it was.
function nextOrder(order, column, part) {
  if (!order || order.column !== column || order.part !== part) return {column, part, direction: 1};
  return order.direction === 1 ? {column, part, direction: -1} : null;
}

// "1.60 [1.20, 2.10]" with its bounds apart, and exact numbers as a hint.
function fillCell(td, cell) {
  const text = textOf(cell), bounds = Array.isArray(cell) && cell.length === 4 ? text.indexOf(" [") : -1;
  if (Array.isArray(cell) && finite(cell[1])) td.title = cell.slice(1).filter(finite).join(", ");
  td.textContent = bounds < 0 ? text : text.slice(0, bounds);
  if (bounds >= 0) td.append(element("span", "bounds", text.slice(bounds)));
}

function drawRow(table, row, inOrder) {
  const tr = element("tr", inOrder && row.rule ? "rule" : "");
  const first = Math.max(0, table.columns.findIndex((c, i) => i < row.cells.length));
  row.cells.forEach((cell, i) => {
    const td = element(i === first ? "th" : "td", table.columns[i].kind === "text" ? "" : "figure");
    if (i === first) td.scope = "row";
    fillCell(td, cell);
    tr.append(td);
  });
  if (row.cells.length < table.columns.length) {
    const td = element("td", "sentence", row.sentence || "");
    td.colSpan = table.columns.length - row.cells.length;
    tr.append(td);
  }
  return tr;
}

function sortButton(text, name, press) {
  const button = element("button", "", text);
  button.type = "button";
  if (name !== text) button.setAttribute("aria-label", name);
  button.addEventListener("click", press);
  return button;
}

function drawHead(table, sort) {
  const tr = element("tr");
  table.columns.forEach((column, i) => {
    const th = element("th", column.kind === "text" ? "" : "figure");
    th.scope = "col";
    if (column.meaning) th.title = column.meaning;
    th.append(sortButton(column.title, `${column.title}, sort`, () => sort(i, 1)));
    if (column.kind === "interval")
      for (const [part, bound] of [[2, "low"], [3, "high"]]) {
        const button = sortButton(bound, `${column.title}, sort by the ${bound === "low" ? "lower" : "upper"} bound`,
                                  () => sort(i, part));
        button.className = "bound";
        th.append(button);
      }
    tr.append(th);
  });
  const head = element("thead");
  head.append(tr);
  return head;
}

function markOrder(head, order) {
  [...head.rows[0].cells].forEach((th, i) => {
    const own = order && order.column === i;
    th.setAttribute("aria-sort", !own ? "none" : order.direction === 1 ? "ascending" : "descending");
    [...th.children].forEach((button, j) => {
      button.dataset.order = own && order.part === j + 1 ? order.direction : "";
    });
  });
}

// What the columns mean, as a list below the table.
function drawMeanings(table) {
  const columns = table.columns.filter(column => column.meaning);
  if (columns.length === 0) return [];
  const details = element("details"), list = element("dl");
  details.append(element("summary", "", "What the columns mean"), list);
  for (const column of columns) list.append(element("dt", "", column.title), element("dd", "", column.meaning));
  return [details];
}

// One table with its title and note; `narrow(choice)` shows the chosen rows alone.
function drawTable(table, id) {
  const found = section(id, table.title, table.note);
  const scroll = element("div", "scroll"), view = element("table"), body = element("tbody");
  const count = element("p", "caption");
  let order = null, choice = {};
  const fill = () => {
    const rows = chosenRows(table, choice);
    body.replaceChildren(...sortedRows(rows, order).map(row => drawRow(table, row, !order)));
    count.textContent = rows.length < table.rows.length ? `${rows.length} of ${table.rows.length} rows are shown.` : "";
  };
  const head = drawHead(table, (column, part) => {
    order = nextOrder(order, column, part);
    markOrder(head, order);
    fill();
  });
  view.append(element("caption", "unseen", table.title), head, body);
  scroll.append(view);
  Object.assign(scroll, {tabIndex: 0, role: "region", ariaLabel: table.title});
  found.append(scroll, count, ...drawMeanings(table));
  markOrder(head, null);
  fill();
  return {section: found, narrow: chosen => { choice = chosen; fill(); }};
}
