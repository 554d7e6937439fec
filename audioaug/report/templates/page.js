
"use strict";

// The page is complete without this script; controls that need it are hidden until now.
for (const controls of document.querySelectorAll(".controls")) controls.hidden = false;

for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentElement.previousElementSibling;
  const status = button.parentElement.querySelector(".copied");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.innerText);
      status.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(code);
      status.textContent = "Selected: copy it with the keyboard.";
    }
  });
}

// One sound at a time.
for (const player of document.querySelectorAll("audio")) {
  player.addEventListener("play", () => {
    for (const other of document.querySelectorAll("audio")) if (other !== player) other.pause();
  });
}

const table = document.getElementById("candidates");
if (table) {
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => !("fixed" in row.dataset));

  const few = 12;
  const all = document.getElementById("all");
  const find = document.getElementById("find");
  const onlyMeasured = document.getElementById("only-measured");
  const filter = () => {
    const plain = (text) => ` ${text.toLowerCase().split(/\s+/).filter(Boolean).join(" ")}`; // words begin with a space
    const wanted = rows.filter((row) => {
      const unwanted = onlyMeasured.checked && row.dataset.measured !== "true";
      return !unwanted && plain(row.textContent).includes(plain(find.value));
    });
    const shown = all.getAttribute("aria-pressed") === "true" ? wanted : wanted.slice(0, few);
    for (const row of rows) row.hidden = !shown.includes(row);
    all.hidden = wanted.length <= few;
    all.textContent = `All ${wanted.length}`;
    document.getElementById("shown").textContent = `${shown.length} of ${rows.length} candidates`;
  };
  find.addEventListener("input", filter);
  onlyMeasured.addEventListener("change", filter);
  all.addEventListener("click", () => {
    all.setAttribute("aria-pressed", all.getAttribute("aria-pressed") !== "true");
    filter();
  });
  filter();

  const headers = [...table.tHead.rows[0].cells];
  for (const header of headers) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[header.cellIndex].dataset.sort;
      const number = (text) => (text === "inf" ? Infinity : Number(text));
      const numeric = rows.every((row) => !Number.isNaN(number(key(row))) && key(row) !== "");
      const compare = numeric
        ? (a, b) => number(key(a)) - number(key(b)) || 0
        : (a, b) => (key(a) === "") - (key(b) === "") || key(a).localeCompare(key(b));
      body.append(...rows.sort((a, b) => (up ? compare(a, b) : compare(b, a))));
      filter();
    });
  }
}

const recorded = document.getElementById("what-if-table");
if (recorded) {
  const { axes, answers } = JSON.parse(recorded.textContent);
  const answer = document.getElementById("what-if-answer");
  const show = () => {
    let place = 0;
    const at = [];
    for (const axis of axes) {
      const slider = document.getElementById(axis.name);
      const value = axis.values[slider.value];
      document.getElementById(`at-${axis.name}`).textContent = value;
      slider.setAttribute("aria-valuetext", value);
      at.push(`${axis.label}: ${value}`);
      place = place * axis.values.length + Number(slider.value);
    }
    document.getElementById("what-if-at").textContent = `Predicted for ${at.join(", ")}:`;
    answer.replaceChildren(
      ...answers[place].map((text) => Object.assign(document.createElement("li"), { textContent: text })),
    );
  };
  for (const axis of axes) document.getElementById(axis.name).addEventListener("input", show);
  show();
}
