// SPDX-License-Identifier: MIT
// The heat map: a row a profile, a column a path and type, a square the worst of its cells.
const heat = document.getElementById("heat");
const layout = DATA.layout; // [[path, [type, …]], …] as indexes, in printed order
const squares = new Map(); // "profile/path/type" → its table cell
const margins = new Map(); // profile → its cells at the right
const keyOf = (profile, path, type) => `${profile}/${path}/${type}`;

function buildMap() {
  const paths = make("tr", {}, make("td")), types = make("tr", {}, make("td"));
  for (const [path, list] of layout) {
    const group = headerButton("path", axes.path[path], () => select(null, path, null, true), { path });
    group.colSpan = list.length;
    paths.append(make("th", { className: "gap" }), group);
    types.append(make("th", { className: "gap" }));
    for (const type of list)
      types.append(headerButton("type", axes.type[type], () => select(null, path, type, true), { path, type }));
  }
  paths.append(make("td"), make("td"), make("td"));
  for (const text of ["cells", "not as expected", "worst pass"]) types.append(make("th", { className: "sum", text }));
  const body = make("tbody");
  axes.profile.forEach((name, profile) => body.append(buildRow(name, profile)));
  heat.append(make("thead", {}, paths, types), body);
  heat.addEventListener("keydown", moveByKey);
}

function headerButton(className, text, action, { path = null, type = null, profile = null }) {
  const button = make("button", { type: "button", text });
  button.addEventListener("click", action);
  const cell = make("th", { className, scope: profile === null ? "col" : "row" }, button);
  Object.assign(cell, { path, type, profile });
  return cell;
}

function buildRow(name, profile) {
  const head = headerButton("row", name, () => select(profile, null, null, true), { profile });
  head.title = DATA.profiles[profile];
  const row = make("tr", {}, head);
  for (const [path, list] of layout) {
    row.append(make("td", { className: "gap" }));
    for (const type of list) {
      const square = make("td", { className: "sq none", role: "gridcell" });
      square.addEventListener("click", () => {
        if (square.classList.contains("none")) return;
        focusSquare(square);
        select(profile, path, type, true);
      });
      squares.set(keyOf(profile, path, type), square);
      row.append(square);
    }
  }
  const sums = [0, 1, 2].map(() => make("td", { className: "sum" }));
  margins.set(profile, sums);
  row.append(...sums);
  return row;
}

function tallyInto(tallies, key, index) {
  let tally = tallies.get(key);
  if (tally === undefined) tallies.set(key, (tally = { cells: 0, counts: [0, 0, 0, 0, 0], share: NaN, verdict: null, rank: 9 }));
  const outcome = columns.outcome[index], rank = RANK.indexOf(outcome);
  tally.cells += 1;
  tally.counts[outcome] += 1;
  if (rank < tally.rank || (rank === tally.rank && DATA.severity[columns.verdict[index]] < DATA.severity[tally.verdict])) {
    tally.rank = rank;
    tally.verdict = columns.verdict[index];
  }
  const share = figureOf("share", index);
  if (verdicts[columns.verdict[index]] === "pass" && !(tally.share >= share) && Number.isFinite(share)) tally.share = share;
}

function drawMap(indexes) {
  const tallies = new Map(), rows = new Map();
  for (const index of indexes) {
    const profile = columns.profile[index];
    tallyInto(tallies, keyOf(profile, columns.path[index], columns.type[index]), index);
    tallyInto(rows, profile, index);
  }
  for (const [key, square] of squares) drawSquare(square, key, tallies.get(key));
  for (const [profile, [cells, odd, share]] of margins) {
    const tally = rows.get(profile);
    const bad = tally ? tally.counts[UNEXPECTED] + tally.counts[CURED] : 0, open = tally ? tally.counts[UNDETERMINED] : 0;
    cells.textContent = tally ? grouped(tally.cells) : "·";
    odd.textContent = bad + open ? grouped(bad + open) : "·";
    odd.className = bad ? "sum bad" : open ? "sum open" : "sum";
    share.textContent = tally ? shareText(tally.share) : "·";
  }
  markSelection();
  keepTabStop();
}

// One square is reached by Tab, the others from there by arrow keys; it must be one that holds cells.
function keepTabStop() {
  if (heat.querySelector('td.sq[tabindex="0"]:not(.none)')) return;
  for (const old of heat.querySelectorAll('td.sq[tabindex="0"]')) old.removeAttribute("tabindex");
  heat.querySelector("td.sq:not(.none)")?.setAttribute("tabindex", "0");
}

function drawSquare(square, key, tally) {
  if (tally === undefined) {
    square.className = "sq none";
    square.textContent = "·";
    square.title = "no cell here";
    square.setAttribute("aria-label", "no cell");
    return;
  }
  const outcome = RANK[tally.rank], clean = outcome === PASS;
  const known = !Number.isNaN(tally.share);
  square.className = "sq " + (clean ? (known ? `s${stepOf(tally.share)}` : "s0") : SQUARE_CLASS[outcome]);
  square.textContent = clean ? (known ? Math.max(tally.share > 0 ? 1 : 0, Math.min(100, Math.floor(tally.share * 100))) : "✓")
    : outcome === CURED ? "!" : letters[tally.verdict];
  const [profile, path, type] = key.split("/").map(Number);
  const words = tally.counts.map((count, at) => (count ? `${grouped(count)} ${DATA.outcomes[at]}` : "")).filter(Boolean);
  const label = `${axes.profile[profile]}, ${axes.path[path]} ${axes.type[type]}: ${words.join(", ")}` +
    (clean ? "" : `; worst: ${verdicts[tally.verdict]}`) + (known ? `; worst share of a pass ${shareText(tally.share)}` : "");
  square.title = label;
  square.setAttribute("aria-label", label);
}

function markSelection() {
  for (const cell of heat.querySelectorAll(".on")) cell.classList.remove("on");
  const { profile, path, type } = state;
  if (profile !== null && type !== null) squares.get(keyOf(profile, path, type))?.classList.add("on");
  for (const head of heat.querySelectorAll("th[scope]")) {
    const row = head.profile !== null && head.profile === profile;
    const column = head.profile === null && head.path === path && path !== null && head.type === type;
    head.classList.toggle("on", row || column);
  }
}

function focusSquare(square) {
  for (const other of heat.querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1;
  square.tabIndex = 0;
  square.focus({ preventScroll: true });
}

function moveByKey(event) {
  const square = event.target.closest("td.sq");
  if (event.key === "Escape") return select(null, null, null);
  if (!square) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    square.click();
    document.getElementById("cells-title").focus({ preventScroll: true });
    return;
  }
  const rows = [...heat.tBodies[0].rows].map((row) => [...row.querySelectorAll("td.sq")]);
  const down = rows.findIndex((row) => row.includes(square)), across = rows[down].indexOf(square);
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const edge = { Home: rows[down][0], End: rows[down].at(-1) }[event.key];
  const step = moves[event.key];
  const next = edge ?? (step && rows[down + step[0]]?.[across + step[1]]);
  if (edge || step) event.preventDefault();
  if (next) {
    focusSquare(next);
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function drawLegend() {
  const legend = document.getElementById("legend");
  const entry = (className, mark, text) =>
    legend.append(make("span", {}, make("i", { className, text: mark }), text));
  ["≤10", "≤25", "≤50", "≤75", "≤90", "≤100"].forEach((text, step) => entry(`s${step}`, text, step === 5 ? "% of the budget, pass" : ""));
  entry("s0", "✓", "pass, no figure");
  entry("bad-sq", "F", "not as expected");
  entry("known-sq", "F", "as declared");
  entry("open-sq", "?", "no answer");
  const shown = [...new Set(columns.verdict)].filter((verdict) => letters[verdict] && letters[verdict] !== "?").sort();
  if (shown.length) legend.append(make("span", { text: shown.map((verdict) => `${letters[verdict]} ${verdicts[verdict]}`).join(", ") }));
}
