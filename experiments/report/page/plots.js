// The plots of the page, each with its caption. Figures, names and scales are the payload's.

function section(id, title, caption) {
  const found = element("section");
  found.id = id;
  found.append(element("h2", "", title));
  if (caption) found.append(element("p", "caption", caption));
  return found;
}

function drawFigure(into, figure, shown) {
  if (figure.title) into.append(element("h3", "", figure.title));
  const panels = shownPanels(figure, shown), names = new Map();
  if (panels.length === 0) {
    into.append(element("p", "empty", "No run that is shown has these figures."));
    return;
  }
  for (const {name, colour} of panels.flatMap(panel => panel.series)) names.set(name, {name, colour});
  const list = element("div", figure.wide ? "panels wide" : "panels");
  for (const panel of panels) list.append(drawPanel(panel, figure));
  into.append(drawLegend([...names.values()]), list);
}

const PHASES = [["draft", "draft"], ["target", "target forward"], ["verify", "verify"],
                ["host", "host: scheduling and the rest"], ["plain-step", "plain decoding's step"]];

function phasesLegend() {
  const legend = element("ul", "legend phases");
  for (const [name, text] of PHASES) {
    const item = element("li");
    item.append(element("span", `swatch ${name}`), element("span", "", text));
    legend.append(item);
  }
  return legend;
}

// Rows of bars or of intervals.
function drawRows(into, plot, shown) {
  const rows = (plot.bars || plot.intervals).filter(row => isShown(row, shown));
  if (rows.length === 0) {
    into.append(element("p", "empty", "No run that is shown has these figures."));
    return;
  }
  const list = plot.bars ? drawBars(rows) : drawIntervals(rows, plot.reference);
  list.setAttribute("aria-label", plot.title);
  into.append(...(plot.bars ? [phasesLegend()] : []), list);
}

// All plots, with the runs that are shown.
function drawPlots(payload, shown) {
  return payload.plots.map(plot => {
    const found = section(plot.id.replace(/[^\w-]/g, "-"), plot.title, plot.caption);
    for (const figure of plot.figures) drawFigure(found, figure, shown);
    if (plot.bars || plot.intervals) drawRows(found, plot, shown);
    return found;
  });
}
