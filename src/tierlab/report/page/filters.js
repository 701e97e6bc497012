// SPDX-License-Identifier: MIT
// What is shown: filters over all cells, and the selected square, row or column within them.
const form = document.getElementById("filters");
const state = { filters: {}, hidden: new Set(), profile: null, path: null, type: null };

function fillFilters() {
  for (const name of ["suite", "build", "threads", "inputs"]) {
    const select = form.elements[name];
    select.append(new Option("all", ""));
    axes[name].forEach((value, index) => select.append(new Option(value, index)));
    select.closest("label").hidden = axes[name].length < 2;
  }
  const counts = new Map();
  for (const verdict of columns.verdict) counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
  const group = document.getElementById("verdicts");
  verdicts.forEach((name, verdict) => {
    if (!counts.has(verdict)) return;
    const button = make("button", { type: "button", "aria-pressed": "true", text: name });
    button.append(make("b", { text: grouped(counts.get(verdict)) }));
    button.addEventListener("click", () => {
      if (!state.hidden.delete(verdict)) state.hidden.add(verdict);
      button.setAttribute("aria-pressed", String(!state.hidden.has(verdict)));
      refresh();
    });
    group.append(button);
  });
  form.addEventListener("input", refresh);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    state.hidden.clear();
    for (const button of group.children) button.setAttribute("aria-pressed", "true");
    setTimeout(refresh);
  });
}

// `*` matches anything; every word must occur somewhere in the id.
function textFilter() {
  const words = form.elements.text.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const tests = words.map((word) =>
    new RegExp(word.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")));
  return (index) => {
    const id = idOf(index).toLowerCase();
    return tests.every((test) => test.test(id));
  };
}

function filtered() {
  const wanted = ["suite", "build", "threads", "inputs"]
    .filter((name) => form.elements[name].value !== "")
    .map((name) => [columns[name], Number(form.elements[name].value)]);
  const matches = textFilter();
  const found = [];
  for (let index = 0; index < COUNT; index++) {
    if (state.hidden.has(columns.verdict[index])) continue;
    if (wanted.some(([column, value]) => column[index] !== value)) continue;
    if (matches === null || matches(index)) found.push(index);
  }
  return found;
}

function selected(indexes) {
  const wanted = ["profile", "path", "type"].filter((name) => state[name] !== null);
  return indexes.filter((index) => wanted.every((name) => columns[name][index] === state[name]));
}

function select(profile, path, type, reveal = false) {
  Object.assign(state, { profile, path, type });
  markSelection();
  showList();
  if (reveal) revealList();
}

// The list comes into view below the map, which stays visible above it.
function revealList() {
  const top = document.getElementById("cells").getBoundingClientRect().top, room = window.innerHeight;
  if (top > room * 0.7) window.scrollBy({ top: top - room * 0.6 });
}

function refresh() {
  state.shown = filtered();
  drawMap(state.shown);
  showList();
}
