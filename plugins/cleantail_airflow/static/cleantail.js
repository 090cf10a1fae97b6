// Theme, search, filter and sort. The page says everything without it.
"use strict";

const THEME = "theme"; // where Airflow's UI keeps its own

function followTheme() {
  let chosen = null;
  try { chosen = localStorage.getItem(THEME); } catch { /* storage is off: the system decides */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

function sortRows(header, body) {
  const text = header.querySelector("button").dataset.kind === "text";
  const first = text ? "ascending" : "descending"; // names from a, numbers from the largest
  const before = header.getAttribute("aria-sort");
  const order = before === "none" ? first : before === "ascending" ? "descending" : "ascending";
  const column = [...header.parentElement.children].indexOf(header);
  const value = (row) => (text ? row.children[column].dataset.sort : Number(row.children[column].dataset.sort));
  const compare = (a, b) => (text ? a.localeCompare(b) : a - b) * (order === "ascending" ? 1 : -1);
  body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b))));
  for (const other of header.parentElement.children) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", order);
}

function setUp() {
  const table = document.getElementById("topics");
  if (!table) return;
  const body = table.tBodies[0];
  const search = document.getElementById("search");
  const chips = [...document.querySelectorAll("[data-filter]")];
  const shown = document.getElementById("shown");

  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    const state = chips.find((chip) => chip.getAttribute("aria-pressed") === "true")?.dataset.filter;
    let count = 0;
    for (const row of body.rows) {
      const match = row.textContent.toLowerCase().includes(wanted) && (!state || row.dataset.state === state);
      row.hidden = !match;
      count += match;
    }
    shown.textContent = wanted || state ? `${count} of ${body.rows.length} shown` : "";
  };
  search.addEventListener("input", filter);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      const pressed = chip.getAttribute("aria-pressed") === "true";
      for (const other of chips) other.setAttribute("aria-pressed", "false");
      chip.setAttribute("aria-pressed", String(!pressed));
      filter();
    });
  }
  for (const header of table.tHead.rows[0].cells) {
    header.querySelector("button").addEventListener("click", () => sortRows(header, body));
  }
  if (document.getElementById("reading")) setTimeout(() => { if (!search.value) location.reload(); }, 2000);
}

followTheme();
addEventListener("storage", (event) => { if (event.key === THEME) followTheme(); });
document.addEventListener("DOMContentLoaded", setUp);
