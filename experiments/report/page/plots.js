// The plots of the page, each with its caption. This file decides what is drawn; figures.js computes it.

function section(id, title, caption) {
  const found = element("section");
  found.id = id;
  found.append(element("h2", "", title));
  if (caption) found.append(element("p", "caption", caption));
  return found;
}

function drawFigure(into, figure, chart) {
  if (figure.panels.length === 0) {
    into.append(element("p", "empty", "No run that is shown has these figures."));
    return;
  }
  const panels = element("div", chart.wide ? "panels wide" : "panels");
  for (const panel of figure.panels) panels.append(drawPanel(panel, chart));
  into.append(drawLegend(figure.names), panels);
}

function pointsOf(figure) { return figure.panels.flatMap(panel => panel.series.flatMap(series => series.points)); }

const ABOVE_ONE = "Above the line at 1 speculation is faster than plain decoding. Bars are 95 % intervals; a run " +
  "measured once on one prompt has none. Hollow marks: the output is not plain decoding's distribution.";

// The title of an axis as a plot names it.
function axisTitle(axis) {
  const known = {"/policy/length": "draft length", "/engine/batch": "batch", "/sampling/temperature": "temperature"};
  return known[axis.pointer] || axis.title;
}

// The axes that speedup is drawn over: numbers with several values; the usual three come first.
function plottedAxes(payload) {
  const first = ["/policy/length", "/engine/batch", "/sampling/temperature"];
  const rank = i => (first.indexOf(payload.axes[i].pointer) + first.length + 1) % (first.length + 1);
  const runs = withSpeedup(payload.runs);
  const several = i => new Set(runs.map(run => run.values[i]).filter(finite)).size > 1;
  return indices(payload.axes, axis => axis.numeric).filter(several).sort((a, b) => rank(a) - rank(b));
}

// `first`: the first of these plots explains all of them.
function plotSpeedupOver(payload, runs, axis, first) {
  const title = axisTitle(payload.axes[axis]), policy = payload.axes[axis].policy;
  const best = policy || !payload.axes.some(a => a.policy) ? "" :
    "Each point is the fastest policy of its group, the greatest of several speedups, so it is a little too high; " +
    "choose one above to hold it fixed. ";
  const found = section(`speedup-${axis}`, `Speedup over ${title}`, best + (first ? ABOVE_ONE : ""));
  const figure = speedupOver(payload, runs, axis), points = pointsOf(figure);
  drawFigure(found, figure, {
    x: {title, values: points.map(p => p.x), discrete: true, octaves: true},
    y: {title: "speedup", values: [], domain: extent(points.flatMap(p => [p.y, p.low, p.high]), [1])},
    reference: 1,
  });
  return found;
}

function plotSpeedupRows(payload, runs) {
  const found = section("speedup-rows", "Speedup of every run",
    "With 95 % intervals, where there are any. The mark across all rows is plain decoding, 1.");
  const rows = speedupRows(runs);
  const list = rows.length ? drawIntervals(rows, 1) : element("p", "empty", "No run that is shown has figures.");
  if (rows.length) list.setAttribute("aria-label", "Speedup of every run");
  found.append(list);
  return found;
}

function plotPositions(payload, runs) {
  const found = section("positions", "Acceptance by position",
    "Of each group the run with the longest drafts. Trees count the levels of their nodes.");
  for (const [name, title] of [["rate", "accepted / tested"], ["reached", "rounds that accepted this far / rounds"]]) {
    const figure = acceptanceByPosition(payload, runs, name), points = pointsOf(figure);
    found.append(element("h3", "", title));
    drawFigure(found, figure, {
      x: {title: "position in the draft", values: points.map(p => p.x), discrete: true},
      y: {title: name === "rate" ? "accepted / tested" : "share of rounds", values: [], domain: [0, 1.04]},
    });
  }
  return found;
}

function plotPhases(payload, runs) {
  const found = section("phases", "Time of a step",
    "Milliseconds of one step for all requests of the batch. A step with speculation emits tau tokens of each " +
    "request, plain decoding's one.");
  const rows = phaseTimes(runs);
  if (rows.length === 0) {
    found.append(element("p", "empty", "No run that is shown has times of steps."));
    return found;
  }
  const legend = element("ul", "legend phases");
  for (const [name, text] of [["draft", "draft"], ["target", "target forward"], ["verify", "verify"],
                              ["host", "host: scheduling and the rest"], ["plain-step", "plain decoding's step"]]) {
    const item = element("li");
    item.append(element("span", `swatch ${name}`), element("span", "", text));
    legend.append(item);
  }
  const bars = drawBars(rows);
  bars.setAttribute("aria-label", "Times of a step by phase");
  found.append(legend, bars);
  return found;
}

function plotPareto(payload, runs) {
  const found = section("pareto", "Throughput and speed of one request",
    "Tokens per second of all requests over those of one request after its first round. Right and up is better. " +
    "Lines join what no other batch or policy exceeds in both (Pareto fronts).");
  const figure = paretoCurves(payload, runs), points = pointsOf(figure);
  drawFigure(found, figure, {
    x: {title: "tokens/s of one request", values: points.map(p => p.x), domain: fromZero(points.map(p => p.x))},
    y: {title: "tokens/s of all", values: points.map(p => p.y), domain: fromZero(points.map(p => p.y)), octaves: true},
    wide: true,
  });
  return found;
}

const LATENCIES = [["ttft", "p90", "time to the first token, 90 of 100 requests"],
                   ["tpot", "p90", "time per token after the first round, 90 of 100 requests"],
                   ["whole", "p50", "time to the end, median"]];

// The throughput-latency curves of serving papers.
function plotLoad(payload, runs) {
  const found = section("load", "Latency over the rate of requests",
    "Open loops: requests arrive at a rate, at the same times for both sides, and latencies count from the arrival. " +
    "Below is better, and farther right before the curve rises. Tokens per second cannot exceed what arrives, so " +
    "there is no speedup.");
  for (const [name, quantile, title] of LATENCIES) {
    const figure = latencyOverRate(payload, runs, name, quantile), points = pointsOf(figure);
    found.append(element("h3", "", title));
    drawFigure(found, figure, {
      x: {title: "requests/s that arrive", values: points.map(p => p.x), discrete: true, octaves: true},
      y: {title: "milliseconds", values: points.map(p => p.y), domain: fromZero(points.map(p => p.y)), octaves: true},
    });
  }
  return found;
}

// All plots of some runs, in the order of the page.
function drawPlots(payload, runs) {
  const axes = plottedAxes(payload), open = withLoad(payload.runs).length > 0;
  const closed = withSpeedup(payload.runs).length > 0 || !open;
  return [...axes.map((axis, i) => plotSpeedupOver(payload, runs, axis, i === 0)),
          ...(axes.length === 0 && closed ? [plotSpeedupRows(payload, runs)] : []),
          ...(open ? [plotLoad(payload, runs)] : []),
          plotPositions(payload, runs), plotPhases(payload, runs), ...(closed ? [plotPareto(payload, runs)] : [])];
}
