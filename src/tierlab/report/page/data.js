// SPDX-License-Identifier: MIT
// The embedded results: columns of numbers, most of them indexes into lists of distinct texts.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const { axes, columns, texts, verdicts, letters } = DATA;
const COUNT = columns.verdict.length;
const PASS = 0, DECLARED = 1, CURED = 2, UNEXPECTED = 3, UNDETERMINED = 4;
// Worst first: what a square shows is decided by the first of these outcomes that occurs in it.
const RANK = [UNEXPECTED, CURED, UNDETERMINED, DECLARED, PASS];
const SQUARE_CLASS = ["", "known-sq", "bad-sq", "bad-sq", "open-sq"];
const TEXT_CLASS = ["v-pass", "v-known", "v-bad", "v-bad", "v-open"];
const STEPS = [0.1, 0.25, 0.5, 0.75, 0.9];

const axis = (name, index) => axes[name][columns[name][index]];

function figureOf(name, index) {
  const value = columns[name][index];
  return value === null ? NaN : value === "inf" ? Infinity : value === "-inf" ? -Infinity : value;
}

function idOf(index) {
  const odd = DATA.ids[index];
  if (odd !== undefined) return odd;
  const part = (name) => axis(name, index);
  return `${part("suite")}/${part("type")}/${part("shape")}/${part("inputs")}/${part("path")}` +
    `/t${part("threads")}/${part("build")}/${part("profile")}`;
}

function reproduceOf(index) {
  const quoted = "'" + idOf(index).replaceAll("'", "'\"'\"'") + "'";
  return DATA.command + quoted + DATA.options[columns.build[index]];
}

const stepOf = (share) => (STEPS.findIndex((limit) => share <= limit) + STEPS.length + 1) % (STEPS.length + 1);

function shareText(value) {
  if (Number.isNaN(value)) return "–";
  if (value === Infinity) return "∞";
  if (value > 1) return (value < 10 || value >= 1000 ? trim(value.toPrecision(2)) : value.toFixed(0)) + " ×";
  if (value === 1) return "100 %";
  if (value >= 0.99 && value < 1) return Math.min(value * 100, 99.9).toFixed(1) + " %";
  return trim((value * 100).toPrecision(2)) + " %";
}

const trim = (text) => (text.includes("e") ? text : String(Number(text)));

function figureText(value) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  const small = value !== 0 && Math.abs(value) < 1e-3;
  return small ? value.toExponential(2) : trim(value.toPrecision(3));
}

const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// Text only ever enters the page as text: nothing in the results is read as markup.
function make(tag, properties = {}, ...children) {
  const { className, text, ...attributes } = properties;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
