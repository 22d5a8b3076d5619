// The scripts of the page of `foretoken report`, without a browser: what they compute, and how they sort.
// usage: node page_scripts.js FOLDER_OF_THE_SCRIPTS
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

for (const name of ["figures.js", "tables.js"])
  vm.runInThisContext(fs.readFileSync(path.join(process.argv[2], name), "utf8"), {filename: name});

const tests = {};

const AXES = [
  {name: "drafter.name", title: "drafter", pointer: "/drafter/name", numeric: false, policy: false, role: "method"},
  {name: "batch", title: "batch", pointer: "/engine/batch", numeric: true, policy: false, role: "condition"},
  {name: "length", title: "length", pointer: "/policy/length", numeric: true, policy: true, role: "method"},
];

function run(drafter, batch, length, speedup, more = {}) {
  const known = {value: speedup, low: speedup - 0.1, high: speedup + 0.1};
  const rates = factor => ({decode_tokens_per_second: factor * 100 / batch, tokens_per_second: factor * 90 * batch});
  const figures = {speedup: known, tau: known, positions: [], speculative: rates(speedup), baseline: rates(1)};
  return {label: `${drafter} ${batch} ${length}`, cells: [drafter, String(batch), String(length)],
          values: [drafter, batch, length], group: `${drafter} ${batch}`, kind: "exact",
          document: {drafter: {name: drafter}}, figures, ...more};
}

const RUNS = [run("a", 1, 2, 1.5), run("a", 1, 4, 2), run("a", 4, 2, 1.2), run("a", 4, 4, 1.1), run("b", 1, 2, 0.9),
              run("b", 1, 4, 0.8), run("b", 4, 2, 0.7), run("b", 4, 4, 0.6)];
const PAYLOAD = {axes: AXES, runs: RUNS};

tests["over a length every run is a point"] = () => {
  const {panels, names} = speedupOver(PAYLOAD, RUNS, 2);
  assert.deepStrictEqual(panels.map(panel => panel.title), ["batch 1", "batch 4"]);
  assert.deepStrictEqual(names.map(entry => entry.name), ["a", "b"]);
  assert.deepStrictEqual(panels[0].series[0].points.map(p => [p.x, p.y]), [[2, 1.5], [4, 2]]);
};

tests["over a batch each group shows its fastest policy"] = () => {
  const {panels} = speedupOver(PAYLOAD, RUNS, 1);
  assert.strictEqual(panels.length, 1);
  assert.deepStrictEqual(panels[0].series[0].points.map(p => [p.x, p.y]), [[1, 2], [4, 1.2]]);
  const held = speedupOver(PAYLOAD, chosenRuns(RUNS, {2: "2"}), 1);
  assert.deepStrictEqual(held.panels[0].series[0].points.map(p => p.y), [1.5, 1.2]);
};

tests["a method keeps its colour"] = () => {
  const colours = runs => speedupOver(PAYLOAD, runs, 2).names.map(({name, colour}) => [name, colour]);
  assert.deepStrictEqual(colours(RUNS), [["a", 0], ["b", 1]]);
  assert.deepStrictEqual(colours(chosenRuns(RUNS, {0: "b"})), [["b", 1]]);
};

tests["labels tell what differs"] = () => {
  assert.strictEqual(labelOf(PAYLOAD, RUNS[0], [0, 1, 2]), "a, batch 1, length 2");
  assert.strictEqual(labelOf({axes: AXES, runs: [RUNS[0]]}, RUNS[0], [0, 1, 2]), "");
  const runs = [RUNS[0], {...RUNS[1], cells: ["a", "-", "4"]}];
  assert.strictEqual(labelOf({axes: AXES, runs}, runs[1], [0, 1, 2]), "length 4");
};

tests["runs without figures are left out"] = () => {
  const unknown = {value: null, low: null, high: null};
  const runs = [{...run("a", 1, 2, 1), figures: undefined, error: "failed"}, run("a", 1, 4, 1.5),
                run("b", 1, 2, 1, {figures: {...RUNS[0].figures, speedup: unknown}})];
  const {panels} = speedupOver({axes: AXES, runs}, runs, 2);
  assert.deepStrictEqual(panels.flatMap(panel => panel.series.map(s => s.points.length)), [1]);
  assert.deepStrictEqual(speedupOver({axes: AXES, runs: []}, [], 2).panels, []);
  assert.deepStrictEqual(paretoCurves({axes: AXES, runs: [runs[0]]}, [runs[0]]).panels, []);
};

tests["an interval without bounds says so"] = () => {
  assert.strictEqual(intervalText({value: 1.5, low: null, high: null}), "1.500 no interval (measured once)");
  assert.strictEqual(intervalText({value: null, low: null, high: null}), "unknown");
  assert.strictEqual(intervalText({value: 1.5, low: 1, high: 2}), "1.500 [1.000, 2.000]");
};

tests["latency over the rate is drawn of both sides"] = () => {
  const rated = (drafter, rate, ttft) => {
    const latency = ms => ({latency_ms: {ttft: {p90: ms}}}), side = overloaded => ({served: rate / 2, overloaded});
    const found = run(drafter, rate, 2, null);
    found.figures = {...found.figures, speculative: latency(ttft), baseline: latency(3 * ttft),
                     load: {rate, speculative: side(rate > 4), baseline: side(true)}};
    return found;
  };
  const axes = AXES.map(axis => axis.pointer === "/engine/batch" ? {...axis, pointer: "/workload/rate"} : axis);
  const runs = [rated("a", 8, 40), rated("a", 2, 10), rated("b", 2, 20)];
  const {panels, names} = latencyOverRate({axes, runs}, runs, "ttft", "p90");
  assert.deepStrictEqual(names.map(entry => entry.name), ["plain decoding", "a", "b"]);
  assert.strictEqual(panels.length, 1);
  const [plain, a, b] = panels[0].series.map(series => series.points.map(p => [p.x, p.y]));
  assert.deepStrictEqual(plain, [[2, 45], [8, 120]], "the median of the baselines of a rate");
  assert.deepStrictEqual(a, [[2, 10], [8, 40]]);
  assert.deepStrictEqual(b, [[2, 20]]);
  assert.deepStrictEqual(panels[0].series[1].points.map(p => p.text[2]),
                         ["1.00 of 2 requests/s served", "4.00 of 8 requests/s served, overload"]);
  assert.deepStrictEqual(withSpeedup(runs), []);
  assert.deepStrictEqual(latencyOverRate(PAYLOAD, RUNS, "ttft", "p90").panels, [], "closed loops have no rate");
};

tests["positions are those of the longest drafts"] = () => {
  const at = (position, rate) => ({position, rate, reached: rate / 2, accepted: 1, tested: 2, drafted: 3});
  const runs = [run("a", 1, 2, 2), run("a", 1, 4, 1)];
  runs[0].figures.positions = [at(1, 0.9)];
  runs[1].figures.positions = [at(1, 0.8), at(2, null), at(3, 0.4)];
  const {panels} = acceptanceByPosition({axes: AXES, runs}, runs, "rate");
  assert.deepStrictEqual(panels[0].series[0].points.map(p => [p.x, p.y]), [[1, 0.8], [3, 0.4]]);
};

tests["phases add up to the step"] = () => {
  const phases = {draft_forward: 1, draft_other: 1, target_forward: 5, verify: 1, total: 10};
  const figures = {speculative: {phases, steps: 1000}, baseline: {phases: {total: 4}, steps: 1000}};
  const [bar] = phaseTimes([run("a", 1, 2, 1, {figures})]);
  assert.deepStrictEqual(bar.parts.map(part => part.ms), [2, 5, 1, 2]);
  assert.deepStrictEqual([bar.total, bar.plain], [10, 4]);
  const unknown = {speculative: {phases: {total: null}, steps: 1}, baseline: {phases: {total: null}, steps: 0}};
  assert.deepStrictEqual(phaseTimes([run("a", 1, 2, 1, {figures: unknown}), {error: "failed"}]), []);
};

tests["a front holds what nothing exceeds"] = () => {
  const front = paretoFront([{x: 1, y: 9}, {x: 2, y: 8}, {x: 2, y: 3}, {x: 1, y: 5}, {x: 4, y: 1}, {x: 3, y: 1}]);
  assert.deepStrictEqual(front, [{x: 1, y: 9}, {x: 2, y: 8}, {x: 4, y: 1}]);
  assert.deepStrictEqual(paretoFront([]), []);
};

tests["plain decoding is one curve of medians"] = () => {
  const runs = [run("a", 1, 2, 2), run("a", 1, 4, 2), run("a", 4, 2, 2)];
  runs[1].figures.baseline = {decode_tokens_per_second: 110, tokens_per_second: 100};
  const {panels, names} = paretoCurves({axes: AXES, runs}, runs);
  assert.strictEqual(panels.length, 1);
  assert.deepStrictEqual(panels[0].series.map(series => series.name), ["plain decoding", "a"]);
  assert.deepStrictEqual(panels[0].series[0].points.map(p => [p.x, p.y]), [[105, 95], [25, 360]]);
  assert.strictEqual(names[0].name, "plain decoding");
};

tests["scales hold what is drawn"] = () => {
  assert.deepStrictEqual(extent([2, 2, null, NaN]), [1, 3]);
  assert.deepStrictEqual(extent([]), [0, 1]);
  assert.deepStrictEqual(extent([0]), [-0.5, 0.5]);
  assert.deepStrictEqual(fromZero([]), [0, 1]);
  assert.ok(spansOctaves([1, 4, 16]) && !spansOctaves([0, 4, 16]) && !spansOctaves([1, 2, 3]) && !spansOctaves([]));
};

const TABLE = {
  columns: [{name: "drafter.name", kind: "text"}, {name: "length", kind: "number"},
            {name: "speedup", kind: "interval"}],
  rows: [{cells: ["b", ["10", 10], ["1.0", 1.0, 0.2, 3.0]]}, {cells: ["a", ["9", 9], ["2.0", 2.0, 0.1, 2.5]]},
         {cells: ["c", ["-", null]], sentence: "failed"}, {cells: ["a", ["2", 2], ["-", null, null, null]]}],
};

function order(column, part, direction) {
  return sortedRows(TABLE.rows, {column, part, direction}).map(row => TABLE.rows.indexOf(row));
}

tests["tables are sorted by numbers, and unknown cells come last"] = () => {
  assert.deepStrictEqual(order(1, 1, 1), [3, 1, 0, 2]);
  assert.deepStrictEqual(order(1, 1, -1), [0, 1, 3, 2]);
  assert.deepStrictEqual(order(2, 1, -1), [1, 0, 2, 3]);
  assert.deepStrictEqual(order(2, 2, -1), [0, 1, 2, 3]);
  assert.deepStrictEqual(order(2, 3, 1), [1, 0, 2, 3]);
  assert.deepStrictEqual(order(0, 1, 1), [1, 3, 0, 2]);
};

tests["a column is sorted up, down, and not at all"] = () => {
  const up = nextOrder(null, 1, 1), down = nextOrder(up, 1, 1);
  assert.deepStrictEqual([up.direction, down.direction, nextOrder(down, 1, 1)], [1, -1, null]);
  assert.deepStrictEqual(nextOrder(down, 1, 2), {column: 1, part: 2, direction: 1});
  assert.strictEqual(sortedRows(TABLE.rows, null), TABLE.rows);
};

tests["a choice narrows the tables that have the axis"] = () => {
  assert.strictEqual(chosenRows(TABLE, {"drafter.name": "a"}).length, 2);
  assert.strictEqual(chosenRows(TABLE, {"drafter.name": "a", length: "9"}).length, 1);
  assert.strictEqual(chosenRows(TABLE, {batch: "4"}).length, 4);
};

for (const [name, test] of Object.entries(tests)) {
  try {
    test();
  } catch (error) {
    console.error(`${name}: ${error.message}`);
    process.exitCode = 1;
  }
}
console.log(`${Object.keys(tests).length} tests of scripts`);
