// Charts: points with intervals and lines in one panel, and rows of bars. This file must not know what they mean.

const SIZE = {width: 310, height: 220, left: 52, right: 10, top: 8, bottom: 38};
const WIDE = {...SIZE, width: 440, height: 270};
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"];
const COLOURS = 8;

function colourClass(colour) { return colour === "plain" ? "plain" : `s${colour % COLOURS}`; }
function symbolOf(colour) { return colour === "plain" ? "circle" : SYMBOLS[colour % SYMBOLS.length]; }

// A new element with a class and a text. Texts of results are only ever set as text.
function element(name, className, text) {
  const found = document.createElement(name);
  if (className) found.className = className;
  if (text !== undefined) found.textContent = text;
  return found;
}

// The tip with exact numbers

function showTip(lines, x, y) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...lines.map((line, i) => element("p", i ? "" : "first", line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), room = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(4, Math.min(x + 12, room - box.width - 4))}px`;
  tip.style.top = `${y + 16 + box.height > window.innerHeight ? Math.max(4, y - box.height - 12) : y + 16}px`;
}

function hideTip() { document.getElementById("tip").hidden = true; }

// Marks show their numbers under the pointer. A panel takes the keyboard's focus, and arrow keys go from mark to mark.
function explain(svg, marks) {
  let at = -1;
  const show = i => {
    marks.classed("active", (mark, j) => j === i);
    at = i;
    const box = marks[0][i].getBoundingClientRect();
    showTip(marks.data()[i].text, box.left + box.width / 2, box.top + box.height / 2);
  };
  const leave = () => { marks.classed("active", false); hideTip(); };
  marks.on("pointerenter", (mark, i) => show(i)).on("pointerleave", leave);
  svg.attr("tabindex", 0).on("blur", leave).on("keydown", () => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[d3.event.key];
    if (d3.event.key === "Escape") leave();
    if (!step || marks.size() === 0) return;
    d3.event.preventDefault();
    show((at + step + marks.size()) % marks.size());
  });
}

// Scales and axes

function scaleOf(axis, range) {
  const scale = axis.log ? d3.scale.log().base(axis.log) : d3.scale.linear();
  return scale.domain(axis.domain).range(range).clamp(true);
}

// Those of the payload; else 1, 2, 5, 10, ... where the scale is logarithmic, and what the scale finds.
function ticksOf(axis, scale) {
  if (axis.ticks) return axis.ticks;
  return axis.log ? scale.ticks().filter(tick => /^[125]/.test(tick.toExponential())) : scale.ticks(6);
}

function numberText(x) {
  return Math.abs(x) >= 10000 ? `${Number((x / 1000).toPrecision(4))}k` : String(Number(x.toPrecision(6)));
}

function drawAxes(svg, chart, x, y) {
  const {width, height, left, right, top, bottom} = chart.wide ? WIDE : SIZE;
  const across = d3.svg.axis().scale(x).orient("bottom").tickValues(ticksOf(chart.x, x)).tickFormat(numberText);
  const up = d3.svg.axis().scale(y).orient("left").tickValues(ticksOf(chart.y, y)).tickFormat(numberText)
    .tickSize(-(width - left - right));
  svg.append("g").attr("class", "axis").attr("transform", `translate(${left},0)`).call(up);
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - bottom})`).call(across);
  svg.append("text").attr("class", "label").attr("x", (left + width - right) / 2).attr("y", height - 6)
    .attr("text-anchor", "middle").text(chart.x.title);
  svg.append("text").attr("class", "label").attr("transform", `translate(9,${(top + height - bottom) / 2}) rotate(-90)`)
    .attr("text-anchor", "middle").text(chart.y.title);
}

// Panels

// Methods beside each other where they share a value of a discrete axis.
function dodge(series, count, discrete) {
  return discrete && count > 1 ? (series - (count - 1) / 2) * Math.min(5, 24 / count) : 0;
}

function drawInterval(svg, mark, x, y, className) {
  if (!finite(mark.low) || !finite(mark.high)) return;
  const bar = [[x, y(mark.low)], [x, y(mark.high)]];
  svg.append("path").attr("class", `interval ${className}`).attr("d", d3.svg.line()(bar));
}

function drawSeries(svg, series, x, y, shift) {
  const className = colourClass(series.colour), line = d3.svg.line().x(p => x(p.x) + shift).y(p => y(p.y));
  for (const point of series.points) drawInterval(svg, point, x(point.x) + shift, y, className);
  const joined = series.line;
  const dashed = series.colour === "plain" || series.colour >= COLOURS ? " dashed" : "";
  if (joined.length > 1) svg.append("path").attr("class", `line ${className}${dashed}`).attr("d", line(joined));
  return series.points.map(point => ({...point, className, symbol: symbolOf(series.colour),
                                      px: x(point.x) + shift, py: y(point.y)}));
}

function drawMarks(svg, marks) {
  return svg.selectAll("path.mark").data(marks).enter().append("path")
    .attr("class", mark => `mark ${mark.className}${mark.hollow ? " hollow" : ""}`)
    .attr("transform", mark => `translate(${mark.px},${mark.py})`)
    .attr("d", mark => d3.svg.symbol().type(mark.symbol).size(38)());
}

// One panel of a figure: {x, y: {title, domain, log, ticks}, reference: a level with a line, wide}
function drawPanel(panel, chart) {
  const {width, height, left, right, top, bottom} = chart.wide ? WIDE : SIZE;
  const figure = element("figure", "panel");
  figure.append(element("figcaption", "", panel.title));
  const svg = d3.select(figure).append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("role", "img")
    .attr("aria-label", `${chart.y.title} over ${chart.x.title}, ${panel.title}: ` +
      `${panel.series.map(series => series.name).join("; ")}. Arrow keys read the points; tables hold the numbers.`);
  const x = scaleOf(chart.x, [left, width - right]), y = scaleOf(chart.y, [height - bottom, top]);
  drawAxes(svg, chart, x, y);
  if (finite(chart.reference))
    svg.append("path").attr("class", "reference")
      .attr("d", d3.svg.line()([[left, y(chart.reference)], [width - right, y(chart.reference)]]));
  const marks = panel.series.flatMap((series, i) =>
    drawSeries(svg, series, x, y, dodge(i, panel.series.length, chart.x.ticks !== null)));
  explain(svg, drawMarks(svg, marks));
  return figure;
}

function drawLegend(names) {
  const list = element("ul", "legend");
  for (const {name, colour} of names) {
    const item = element("li");
    const key = d3.select(item).append("svg").attr("viewBox", "0 0 24 12").attr("aria-hidden", true);
    const dashed = colour === "plain" || colour >= COLOURS ? " dashed" : "";
    key.append("path").attr("class", `line ${colourClass(colour)}${dashed}`).attr("d", "M0,6H24");
    key.append("path").attr("class", `mark ${colourClass(colour)}`).attr("transform", "translate(12,6)")
      .attr("d", d3.svg.symbol().type(symbolOf(colour)).size(38)());
    item.append(element("span", "", name));
    list.append(item);
  }
  return list;
}

// Rows: a label, then parts of a bar or a point with its interval

const ROW = {width: 640, height: 16};

function rowOf(label, numbers, describe) {
  const row = element("li");
  row.append(element("span", "row-label", label), element("span", "row-number", numbers));
  const svg = d3.select(row).append("svg").attr("viewBox", `0 0 ${ROW.width} ${ROW.height}`)
    .attr("preserveAspectRatio", "none").attr("role", "img").attr("aria-label", describe);
  return {row, svg};
}

// rows: {label, total, plain, parts: [{name, ms}]}
function drawBars(rows) {
  const most = d3.max(rows.map(row => Math.max(row.total, row.plain || 0)));
  const x = d3.scale.linear().domain([0, most]).range([0, ROW.width - 2]);
  const list = element("ol", "rows");
  list.tabIndex = 0;
  for (const bar of rows) {
    const parts = bar.parts.map(part => `${part.name} ${part.ms.toFixed(3)} ms`);
    const plain = bar.plain === null ? "plain decoding unknown" : `plain ${bar.plain.toFixed(2)} ms`;
    const {row, svg} = rowOf(bar.label, `${bar.total.toFixed(2)} ms; ${plain}`, parts.join(", "));
    let from = 0;
    for (const part of bar.parts) {
      svg.append("rect").attr("class", `phase ${part.name}`).attr("x", x(from)).attr("width", x(part.ms)).attr("y", 2)
        .attr("height", ROW.height - 4);
      from += part.ms;
    }
    if (bar.plain !== null)
      svg.append("rect").attr("class", "plain-step").attr("x", x(bar.plain) - 1).attr("width", 3)
        .attr("height", ROW.height);
    const text = [bar.label, ...parts.map((part, i) => `${part}, ${(100 * bar.parts[i].ms / bar.total).toFixed(1)} %`),
                  plain];
    svg.on("pointermove", () => showTip(text, d3.event.clientX, d3.event.clientY)).on("pointerleave", hideTip);
    list.append(row);
  }
  return list;
}

// rows: {label, y, low, high, text}
function drawIntervals(rows, reference) {
  const known = rows.flatMap(row => [row.y, row.low, row.high]).filter(finite).concat(reference);
  const x = d3.scale.linear().domain(d3.extent(known)).nice().range([0, ROW.width]);
  const list = element("ol", "rows");
  list.tabIndex = 0;
  for (const mark of rows) {
    const {row, svg} = rowOf(mark.label, "", mark.text.join(", "));
    row.querySelector(".row-number").textContent = mark.text[1];
    const middle = ROW.height / 2;
    svg.append("rect").attr("class", "plain-step").attr("x", x(reference) - 1).attr("width", 2)
      .attr("height", ROW.height);
    if (finite(mark.low) && finite(mark.high))
      svg.append("rect").attr("class", "phase target").attr("x", x(mark.low)).attr("width", x(mark.high) - x(mark.low))
        .attr("y", middle - 1.5).attr("height", 3);
    svg.append("rect").attr("class", "phase target").attr("x", x(mark.y) - 3).attr("width", 6).attr("y", middle - 5)
      .attr("height", 10);
    svg.on("pointermove", () => showTip(mark.text, d3.event.clientX, d3.event.clientY)).on("pointerleave", hideTip);
    list.append(row);
  }
  return list;
}
