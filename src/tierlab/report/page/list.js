// SPDX-License-Identifier: MIT
// The cells of what is selected, worst first; rows are made as they come into view.
const BATCH = 100;
const body = document.querySelector("#list tbody"), more = document.getElementById("more");
const HEADS = [["verdict", ""], ["suite", ""], ["profile", ""], ["path", ""], ["type", ""], ["shape", ""], ["inputs", ""],
  ["threads", "num"], ["build", ""], ["share of budget", "num"], ["NMSE", "num"], ["max abs", "num"], ["ULP", "num"], ["ran", ""]];
let queue = [], rendered = 0;

function buildList() {
  document.querySelector("#list thead").append(
    make("tr", {}, ...HEADS.map(([text, className]) => make("th", { text, className, scope: "col" }))));
  new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) renderBatch();
  }, { rootMargin: "200px" }).observe(more);
  document.getElementById("clear").addEventListener("click", () => select(null, null, null));
}

function showList() {
  const rank = (index) => RANK.indexOf(columns.outcome[index]) * 16 + DATA.severity[columns.verdict[index]];
  const share = (index) => { const value = figureOf("share", index); return Number.isNaN(value) ? -1 : value; };
  const keyed = selected(state.shown).map((index) => [rank(index), share(index), index]);
  keyed.sort((a, b) => a[0] - b[0] || b[1] - a[1] || a[2] - b[2]);
  queue = keyed.map((entry) => entry[2]);
  rendered = 0;
  body.replaceChildren();
  const names = [["profile", state.profile], ["path", state.path], ["type", state.type]].filter(([, value]) => value !== null);
  const title = names.map(([name, value]) => axes[name][value]).join(" · ") || "all cells";
  document.getElementById("cells-title").replaceChildren(
    names.length ? "Cells: " + title : "Cells", make("small", { text: `${grouped(queue.length)}, worst first` }));
  document.getElementById("clear").hidden = !names.length;
  renderBatch();
}

function renderBatch() {
  const rows = queue.slice(rendered, rendered + BATCH).map(makeRow);
  rendered += rows.length;
  body.append(...rows);
  more.textContent = rendered < queue.length ? `${grouped(rendered)} of ${grouped(queue.length)} cells shown; scroll for more`
    : queue.length ? "" : "No cell matches.";
}

function makeRow(index) {
  const outcome = columns.outcome[index];
  const word = verdicts[columns.verdict[index]] + ["", " (declared)", " (declared faulty)", "", ""][outcome];
  const button = make("button", { type: "button", className: `open ${TEXT_CLASS[outcome]}`, "aria-expanded": "false", text: word });
  const share = figureOf("share", index);
  const bar = make("i", { className: share > 1 ? "over" : "" });
  bar.style.width = `${Number.isNaN(share) ? 0 : Math.min(100, share * 100)}%`;
  const row = make("tr", { className: "cell" }, make("td", {}, button),
    ...["suite", "profile", "path", "type", "shape", "inputs"].map((name) => make("td", { className: "mono", text: axis(name, index) })),
    make("td", { className: "num", text: axis("threads", index) }), make("td", { className: "mono", text: axis("build", index) }),
    make("td", { className: "num", text: shareText(share) }, make("span", { className: "meter" }, bar)),
    ...["nmse", "max_abs", "ulp"].map((name) => make("td", { className: "num", text: figureText(figureOf(name, index)) })),
    make("td", { className: "mono ran dim", text: ranText(index, 2) }));
  row.addEventListener("click", () => toggleDetail(row, button, index));
  return row;
}

function ranText(index, limit = Infinity) {
  const ran = texts.ran[columns.ran[index]];
  const shown = ran.slice(0, limit).map(([symbol, calls]) => `${symbol} × ${grouped(calls)}`);
  return shown.join(", ") + (ran.length > limit ? `, and ${ran.length - limit} more` : "");
}

function toggleDetail(row, button, index) {
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  if (open) return row.nextElementSibling.remove();
  const list = make("dl"), add = (name, text) => text && list.append(make("dt", { text: name }), make("dd", { text }));
  const claimed = columns.claimed[index];
  add("cell", idOf(index));
  add("what", texts.detail[columns.detail[index]]);
  add("declared", texts.reason[columns.reason[index]]);
  add("share of budget", shareText(figureOf("share", index)) + resolutionText(index));
  add("ran", ranText(index) || "no counted kernel");
  add("claimed", claimed === null ? "" : claimed ? "yes" : "no");
  add("output sha256", columns.digest[index] && columns.digest[index] + "…");
  add("cost", `${figureText(columns.wall_ms[index])} ms, ${figureText(columns.kernel_ms[index])} ms of it in the emulated kernel` +
    (columns.cached[index] ? " (from the verdict cache)" : ""));
  const command = make("div", { className: "command" }, copyButton(reproduceOf(index)), make("code", { text: reproduceOf(index) }));
  row.after(make("tr", { className: "detail" }, Object.assign(make("td", {}, list, command), { colSpan: HEADS.length })));
}

function resolutionText(index) {
  const value = figureOf("resolution", index);
  return Number.isNaN(value) ? "" : `; one step of one weight code: ${shareText(value)}`;
}

function copyButton(text) {
  const button = make("button", { type: "button", className: "copy", text: "Copy" });
  button.addEventListener("click", (event) => { event.stopPropagation(); copy(text, button); });
  return button;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page opened from a file may have no clipboard permission
    const area = make("textarea", { className: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
  document.getElementById("said").textContent = "Command copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

for (const button of document.querySelectorAll("button[data-copy]"))
  button.addEventListener("click", () => copy(button.dataset.copy, button));
fillFilters();
buildMap();
buildList();
drawLegend();
refresh();
