// Theme, search, filter, sort, and links out of the frame. Without this script the page still shows everything.
"use strict";

const THEME = "theme"; // the key of Airflow's own UI

function followTheme() {
  let chosen = null;
  try { chosen = localStorage.getItem(THEME); } catch { /* storage is off: the system decides */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

function sortRows(header, body) {
  const text = header.querySelector("button").dataset.kind === "text";
  const first = text ? "ascending" : "descending"; // sort names from a, numbers from the largest
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
  const group = document.getElementById("group");
  group?.addEventListener("change", () => group.form.submit()); // submit() skips the listener below
  if (document.getElementById("reading")) setTimeout(reloadUnlessBusy, 2000);
  if (!("whole" in table.dataset)) return; // there are more pages: the server searches, filters and sorts
  const form = document.getElementById("find");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("button").hidden = true; // the search runs at each key
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
}

function reloadUnlessBusy() {
  const search = document.getElementById("search");
  if (search.value === search.defaultValue) location.reload();
}

// The sandbox of Airflow's frame blocks links that leave it, so a link of the outer page is used instead.
function leaveFrame(event) {
  const link = event.target.closest?.("a[target=_top]");
  if (!link || window.top === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  let outside = null;
  try { outside = window.top.document; } catch { return; } // another site's frame: the browser decides
  event.preventDefault();
  const copy = outside.createElement("a");
  copy.href = link.href;
  outside.body.append(copy);
  copy.click();
  copy.remove();
}

// Hide the link to Airflow if Airflow's menu surrounds the page, and the link to the DAG in the DAG's own tab.
function seeSurroundings() {
  if (window.top === window) return;
  document.documentElement.classList.add("framed");
  let path = "";
  try { path = window.top.location.pathname; } catch { return; } // another site's frame
  for (const way of document.querySelectorAll(".own-dag")) {
    const dag = way.querySelector("a").pathname;
    way.hidden = path === dag || path.startsWith(`${dag}/`);
  }
}

followTheme();
document.addEventListener("DOMContentLoaded", seeSurroundings);
document.addEventListener("click", leaveFrame);
addEventListener("storage", (event) => { if (event.key === THEME) followTheme(); });
document.addEventListener("DOMContentLoaded", setUp);
