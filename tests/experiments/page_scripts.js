// The scripts of the page of `foretoken report`, without a browser: what they show, and how they sort.
// usage: node page_scripts.js FOLDER_OF_THE_SCRIPTS
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

for (const name of ["figures.js", "tables.js"])
  vm.runInThisContext(fs.readFileSync(path.join(process.argv[2], name), "utf8"), {filename: name});

const tests = {};

const RUNS = [["a", "1"], ["a", "4"], ["b", "1"], ["b", "4"]].map(cells => ({cells}));

function mark(x, y, ...runs) { return {x, y, runs}; }

// Two methods in one panel; at 2 of "a" two runs are candidates, the better first.
const FIGURE = {panels: [
  {title: "one", series: [{name: "a", points: [[mark(1, 3, 0)], [mark(2, 9, 1), mark(2, 1, 0)]]},
                          {name: "b", points: [[mark(1, 4, 2, 3)]]}]},
  {title: "two", series: [{name: "b", points: [[mark(1, 5, 3)]]}]}]};

function drawn(choice, figure = FIGURE) {
  return shownPanels(figure, chosenRuns(RUNS, choice))
    .map(panel => [panel.title, panel.series.map(series => [series.name, series.points.map(p => [p.x, p.y])])]);
}

tests["runs are chosen by the texts of their axes"] = () => {
  assert.deepStrictEqual([...chosenRuns(RUNS, {})], [0, 1, 2, 3]);
  assert.deepStrictEqual([...chosenRuns(RUNS, {0: "b", 1: "4"})], [3]);
  assert.deepStrictEqual(valuesOf(RUNS, 0), ["a", "b"]);
};

tests["a point shows the first candidate that is chosen"] = () => {
  assert.deepStrictEqual(drawn({}), [["one", [["a", [[1, 3], [2, 9]]], ["b", [[1, 4]]]]], ["two", [["b", [[1, 5]]]]]]);
  assert.deepStrictEqual(drawn({1: "1"}), [["one", [["a", [[1, 3], [2, 1]]], ["b", [[1, 4]]]]]]);
};

tests["what has no chosen run is not drawn"] = () => {
  assert.deepStrictEqual(drawn({0: "b", 1: "4"}), [["one", [["b", [[1, 4]]]]], ["two", [["b", [[1, 5]]]]]]);
  assert.deepStrictEqual(drawn({0: "c"}), []);
};

tests["a line joins its points, or those that no other one exceeds"] = () => {
  const lineOf = figure => shownPanels(figure, chosenRuns(RUNS, {}))[0].series[0].line.map(p => [p.x, p.y]);
  assert.deepStrictEqual(lineOf(FIGURE), [[1, 3], [2, 9]]);
  assert.deepStrictEqual(lineOf({...FIGURE, front: true}), [[2, 9]]);
  const points = [mark(3, 1), mark(1, 3), mark(2, 2), mark(1, 1), mark(2, 1)];
  assert.deepStrictEqual(paretoFront(points).map(p => [p.x, p.y]), [[1, 3], [2, 2], [3, 1]]);
  assert.deepStrictEqual(paretoFront([]), []);
};

const TABLE = {
  columns: [{name: "drafter", kind: "text"}, {name: "length", kind: "number"},
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
  assert.strictEqual(chosenRows(TABLE, {"drafter": "a"}).length, 2);
  assert.strictEqual(chosenRows(TABLE, {"drafter": "a", length: "9"}).length, 1);
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
