
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

const table = document.getElementById("candidate-table");
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
    document.getElementById("shown").textContent = `${shown.length} of ${rows.length} candidate${rows.length === 1 ? "" : "s"}`;
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

const sliders = document.getElementById("sliders");
if (sliders) {
  const { axes, candidates, times, rest } = JSON.parse(document.getElementById("sliders-data").textContent);
  const inputs = axes.map((axis) => document.getElementById(axis.name));
  const marks = new Map(rest.map(([mark, name]) => [name, mark]));
  const three = (value) => (value < 100 ? value.toPrecision(3) : Math.round(value).toLocaleString("en"));
  const predicted = ([cores, step, batch]) => {
    const sizes = axes[2].values.map(Number);
    return candidates
      .map((name, place) => [name, times[cores * axes[1].values.length + step][place]])
      .filter(([, ms]) => ms !== null)
      .sort(([, one], [, other]) => one - other)
      .map(([name, ms]) => {
        const rate = (1e3 * sizes[axes[2].start]) / ms;
        const shown = rate < 10 ? rate.toPrecision(2) : Math.round(rate).toLocaleString("en");
        return [marks.get(name) ?? "", name, three((ms * sizes[batch]) / sizes[axes[2].start]), "predicted", shown];
      });
  };
  const row = (texts) => {
    const made = document.createElement("tr");
    made.className = texts[0].includes("use") ? "best" : "plain";
    texts.forEach((text, place) => {
      made.insertCell().textContent = text;
      made.cells[place].className = place === 2 || place === 4 ? "number" : "";
    });
    return made;
  };
  const show = () => {
    const at = inputs.map((input) => Number(input.value));
    const texts = axes.map((axis, place) => axis.values[at[place]]);
    const isRest = axes.every((axis, place) => at[place] === axis.start);
    axes.forEach((axis, place) => {
      document.getElementById(`at-${axis.name}`).textContent = texts[place];
      inputs[place].setAttribute("aria-valuetext", texts[place]);
    });
    const where = axes.map((axis, place) => `${axis.label}: ${texts[place]}`).join(", ");
    document.getElementById("sliders-at").textContent = isRest ? "This machine, as in the table above:" : `Predicted for ${where}:`;
    document.querySelector("#sliders-table tbody").replaceChildren(...(isRest ? rest : predicted(at)).map(row));
  };
  for (const input of inputs) input.addEventListener("input", show);
  document.getElementById("reset").addEventListener("click", () => {
    axes.forEach((axis, place) => (inputs[place].value = axis.start));
    show();
  });
  sliders.hidden = false;
  show();
}
