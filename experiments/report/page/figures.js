// Which marks of the payload are shown where a reader chooses some runs. This file must not know what they mean.

function finite(x) { return typeof x === "number" && Number.isFinite(x); }

// Indices of the runs with these axes as chosen: {index of an axis: its text}.
function chosenRuns(runs, choice) {
  return new Set(runs.flatMap((run, i) =>
    Object.entries(choice).every(([axis, text]) => run.cells[axis] === text) ? [i] : []));
}

// Distinct texts of an axis, in the order of the runs.
function valuesOf(runs, axis) { return [...new Set(runs.map(run => run.cells[axis]))]; }

function isShown(mark, shown) { return mark.runs.some(i => shown.has(i)); }

// Panels with, of the candidates of each point, the first that is shown; without what is empty.
function shownPanels(figure, shown) {
  return figure.panels.map(panel => ({...panel, series: panel.series.map(series => {
    const points = series.points.map(candidates => candidates.find(mark => isShown(mark, shown))).filter(Boolean);
    return {...series, points, line: figure.front ? paretoFront(points) : points};
  }).filter(series => series.points.length > 0)})).filter(panel => panel.series.length > 0);
}

// The line through the points that no other one exceeds in both coordinates, from left to right.
function paretoFront(points) {
  const front = [];
  for (const point of [...points].sort((a, b) => b.x - a.x || b.y - a.y))
    if (front.length === 0 || point.y > front[front.length - 1].y) front.push(point);
  return front.reverse();
}
