// What the plots show, computed from the runs of the payload. This file must not know the document: charts.js draws.

const SEPARATOR = "\u0001";

function finite(x) { return typeof x === "number" && Number.isFinite(x); }

// The runs with these axes as chosen: {index of an axis: its text}.
function chosenRuns(runs, choice) {
  return runs.filter(run => Object.entries(choice).every(([axis, text]) => run.cells[axis] === text));
}

// Distinct texts of an axis, in the order of the runs.
function valuesOf(runs, axis) { return [...new Set(runs.map(run => run.cells[axis]))]; }

function indices(axes, wanted) { return axes.map((axis, i) => i).filter(i => wanted(axes[i], i)); }

// "T 0, batch 4"; an axis with one value in all runs is left out, and one that this run does not have.
function labelOf(payload, run, axes) {
  return axes.filter(i => run.cells[i] !== "-" && valuesOf(payload.runs, i).length > 1)
    .map(i => {
      const axis = payload.axes[i];
      return axis.pointer.endsWith("/name") ? run.cells[i] : `${axis.title} ${run.cells[i]}`;
    }).join(", ");
}

// Items with equal keys together, in order of appearance: [[key, items], ...].
function grouped(items, key) {
  const found = new Map();
  for (const item of items) {
    const k = key(item);
    if (!found.has(k)) found.set(k, []);
    found.get(k).push(item);
  }
  return [...found];
}

function drafterOf(run) { return String((run.document.drafter || {}).name || "speculation"); }

function keyOf(axes) { return run => axes.map(i => run.cells[i]).join(SEPARATOR); }

// Panels, one for each combination of conditions, and in them series, one for each method. The colour of a method is
// the same in all panels, whatever runs are chosen.
function panelsOf(payload, runs, conditions, methods, pointsOf) {
  const nameOf = run => labelOf(payload, run, methods) || drafterOf(run);
  const all = [...new Set(payload.runs.map(nameOf))];
  const panels = grouped(runs, keyOf(conditions)).map(([, inside]) => ({
    title: labelOf(payload, inside[0], conditions) || "all runs",
    series: grouped(inside, keyOf(methods)).map(([, same]) => {
      const name = nameOf(same[0]);
      return {name, colour: all.indexOf(name), points: pointsOf(same)};
    }).filter(series => series.points.length > 0),
  })).filter(panel => panel.series.length > 0);
  const shown = new Set(panels.flatMap(panel => panel.series.map(series => series.name)));
  return {panels, names: all.map((name, colour) => ({name, colour})).filter(({name}) => shown.has(name))};
}

// Of the runs that differ only in their policy the one with the most of something.
function mostOfGroup(runs, figure) {
  return grouped(runs, run => run.group).map(([, group]) =>
    group.reduce((best, run) => figure(run) > figure(best) ? run : best));
}

function measured(runs) { return runs.filter(run => run.figures); }

// Open loops have no speedup: their rate caps it.
function withSpeedup(runs) { return measured(runs).filter(run => finite(run.figures.speedup.value)); }

function withLoad(runs) { return measured(runs).filter(run => run.figures.load); }

function intervalText(interval, digits = 3) {
  if (!finite(interval.value)) return "unknown";
  const bounds = finite(interval.low) && finite(interval.high)
    ? `[${interval.low.toFixed(digits)}, ${interval.high.toFixed(digits)}]` : "no interval (measured once)";
  return `${interval.value.toFixed(digits)} ${bounds}`;
}

function runText(run) { return run.label + (run.kind && run.kind !== "exact" ? `, ${run.kind}` : ""); }

function speedupPoint(run, x) {
  const {value, low, high} = run.figures.speedup;
  return {x, y: value, low, high, hollow: run.kind !== "exact",
          text: [runText(run), `speedup ${intervalText(run.figures.speedup)}`, `tau ${intervalText(run.figures.tau)}`]};
}

// Speedup over one numeric axis. Over an axis outside the policy only the fastest policy of each group is shown.
function speedupOver(payload, runs, x) {
  const axes = payload.axes, policy = axes[x].policy;
  let usable = withSpeedup(runs).filter(run => finite(run.values[x]));
  if (!policy) usable = mostOfGroup(usable, run => run.figures.speedup.value);
  const conditions = indices(axes, (axis, i) => axis.role === "condition" && i !== x);
  const methods = indices(axes, (axis, i) => axis.role === "method" && i !== x && (policy || !axis.policy));
  return panelsOf(payload, usable, conditions, methods, same =>
    same.map(run => speedupPoint(run, run.values[x])).sort((a, b) => a.x - b.x));
}

// `figure`: rate (accepted / tested) or reached (rounds that accepted this far / rounds), of the longest drafts of each
// group.
function acceptanceByPosition(payload, runs, figure) {
  const positions = run => run.figures.positions.length;
  const longest = mostOfGroup(measured(runs).filter(run => positions(run) > 0), positions);
  return panelsOf(payload, longest, indices(payload.axes, axis => axis.role === "condition"),
    indices(payload.axes, axis => axis.role === "method" && !axis.policy), same =>
      same.flatMap(run => run.figures.positions.filter(at => finite(at[figure])).map(at =>
        ({x: at.position, y: at[figure], hollow: run.kind !== "exact",
          text: [runText(run), `position ${at.position}: ${at[figure].toFixed(4)}`,
                 `accepted ${at.accepted}, tested ${at.tested}, drafted ${at.drafted}`]}))));
}

// Milliseconds of a step by phase, and the baseline's step.
function phaseTimes(runs) {
  const found = [];
  for (const run of runs) {
    const side = run.figures && run.figures.speculative, plain = run.figures && run.figures.baseline;
    if (!side || !finite(side.phases.total) || !(side.steps > 0)) continue;
    const p = side.phases, ms = seconds => 1000 * seconds / side.steps;
    const draft = p.draft_forward + p.draft_other;
    const parts = [["draft", draft], ["target", p.target_forward], ["verify", p.verify],
                   ["host", Math.max(0, p.total - draft - p.target_forward - p.verify)]];
    found.push({label: runText(run), total: ms(p.total),
                plain: finite(plain.phases.total) && plain.steps > 0 ? 1000 * plain.phases.total / plain.steps : null,
                parts: parts.map(([name, seconds]) => ({name, ms: ms(seconds)}))});
  }
  return found;
}

// The points that no other one exceeds in both coordinates, from left to right.
function paretoFront(points) {
  const front = [];
  for (const point of [...points].sort((a, b) => b.x - a.x || b.y - a.y))
    if (front.length === 0 || point.y > front[front.length - 1].y) front.push(point);
  return front.reverse();
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function ratePoint(run, side) {
  const {decode_tokens_per_second: x, tokens_per_second: y} = run.figures[side];
  return finite(x) && finite(y) ? {x, y, run} : null;
}

function rateText(x, y) { return [`${x.toFixed(1)} tokens/s of one request`, `${y.toFixed(1)} tokens/s of all`]; }

// Plain decoding, which each run measured for itself: the median of the runs of one batch size.
function plainSeries(runs, batch) {
  const points = grouped(runs, run => batch < 0 ? "" : run.cells[batch]).flatMap(([size, same]) => {
    const rates = same.map(run => ratePoint(run, "baseline")).filter(Boolean);
    if (rates.length === 0) return [];
    const x = median(rates.map(p => p.x)), y = median(rates.map(p => p.y));
    const of = rates.length > 1 ? `, median of ${rates.length} baselines` : "";
    return [{x, y, text: [`plain decoding${size ? `, batch ${size}` : ""}${of}`, ...rateText(x, y)]}];
  });
  return {name: "plain decoding", colour: "plain", points, line: paretoFront(points)};
}

// Tokens per second of all requests over those of one request: what serving trades by its batch. Lines are Pareto
// fronts over batch sizes and policies.
function paretoCurves(payload, runs) {
  const batch = payload.axes.findIndex(axis => axis.pointer === "/engine/batch");
  const conditions = indices(payload.axes, (axis, i) => axis.role === "condition" && i !== batch);
  const found = panelsOf(payload, withSpeedup(runs), conditions,
    indices(payload.axes, axis => axis.role === "method" && !axis.policy), same =>
      same.map(run => ratePoint(run, "speculative")).filter(Boolean).map(({x, y, run}) =>
        ({x, y, run, hollow: run.kind !== "exact", text: [runText(run), ...rateText(x, y)]})));
  const key = keyOf(conditions);
  for (const panel of found.panels) {
    for (const series of panel.series) series.line = paretoFront(series.points);
    const first = key(panel.series[0].points[0].run);
    panel.series.unshift(plainSeries(withSpeedup(runs).filter(run => key(run) === first), batch));
  }
  if (found.panels.length > 0) found.names.unshift({name: "plain decoding", colour: "plain"});
  return found;
}

// A latency of one side of open loops over the rate, at a quantile: ttft, tpot or whole.
function latencyPoints(runs, side, name, quantile) {
  return runs.map(run => {
    const {rate, [side]: load} = run.figures.load, y = run.figures[side].latency_ms[name][quantile];
    return {x: rate, y, run, hollow: side === "speculative" && run.kind !== "exact",
            text: [runText(run), `${name} ${finite(y) ? y.toFixed(2) : "unknown"} ms, ${quantile}`,
                   `${load.served.toFixed(2)} of ${rate} requests/s served${load.overloaded ? ", overload" : ""}`]};
  }).filter(point => finite(point.y)).sort((a, b) => a.x - b.x);
}

// Plain decoding, which each run measured for itself: the median of the runs of one rate.
function plainLatencies(runs, name, quantile) {
  const points = grouped(runs, run => run.figures.load.rate).flatMap(([, same]) => {
    const all = latencyPoints(same, "baseline", name, quantile);
    if (all.length === 0) return [];
    const y = median(all.map(point => point.y)), of = all.length > 1 ? `, median of ${all.length} baselines` : "";
    return [{x: all[0].x, y, text: [`plain decoding${of}`, `${name} ${y.toFixed(2)} ms, ${quantile}`]}];
  });
  return {name: "plain decoding", colour: "plain", points: points.sort((a, b) => a.x - b.x)};
}

function latencyOverRate(payload, runs, name, quantile) {
  const rate = payload.axes.findIndex(axis => axis.pointer === "/workload/rate");
  const conditions = indices(payload.axes, (axis, i) => axis.role === "condition" && i !== rate);
  const found = panelsOf(payload, withLoad(runs), conditions, indices(payload.axes, axis => axis.role === "method"),
    same => latencyPoints(same, "speculative", name, quantile));
  const key = keyOf(conditions);
  for (const panel of found.panels) {
    const first = key(panel.series[0].points[0].run);
    panel.series.unshift(plainLatencies(withLoad(runs).filter(run => key(run) === first), name, quantile));
  }
  if (found.panels.length > 0) found.names.unshift({name: "plain decoding", colour: "plain"});
  return found;
}

// Runs with a speedup as rows, for results without a numeric axis.
function speedupRows(runs) {
  return withSpeedup(runs).map(run => ({label: runText(run), ...speedupPoint(run, run.figures.speedup.value)}));
}

// The least and the greatest of what is finite, a little wider; of equal numbers an interval around them.
function extent(numbers, includes = []) {
  const known = numbers.concat(includes).filter(finite);
  if (known.length === 0) return [0, 1];
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  const margin = high > low ? 0.05 * (high - low) : 0.5 * Math.abs(high) || 0.5;
  return [low - margin, high + margin];
}

// From zero to a little above the greatest.
function fromZero(numbers) { return [0, 1.05 * numbers.filter(finite).reduce((a, b) => Math.max(a, b), 0) || 1]; }

// Whether an axis with these values is read better on a logarithmic scale: batches and lengths that double.
function spansOctaves(values) {
  const known = values.filter(finite);
  return known.length > 2 && Math.min(...known) > 0 && Math.max(...known) / Math.min(...known) >= 8;
}
