// Tables are sorted by a click on a column's name: numbers by size, the rest as text, what is missing last.

function valueOf(cell) {
  const text = cell.textContent.trim();
  const number = /^[<>]?\s*[-−]?[\d,]*\.?\d+(e[-+]?\d+)?/i.exec(text);
  return { missing: text === "" || text === "–", number: number ? Number(number[0].replace(/[<>,\s]/g, "").replace("−", "-")) : NaN, text };
}

function compare(a, b, down) {
  if (a.missing || b.missing) return a.missing - b.missing;
  const bothNumbers = !Number.isNaN(a.number) && !Number.isNaN(b.number);
  const order = bothNumbers ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true });
  return down ? -order : order;
}

function sortBy(table, column, down) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [row, valueOf(row.cells[column])]);
  rows.sort(([, a], [, b]) => compare(a, b, down));
  body.append(...rows.map(([row]) => row));
}

document.querySelectorAll("table.sortable").forEach((table) => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const down = now ? now === "ascending" : head.classList.contains("num"); // numbers: the largest first
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortBy(table, column, down);
    });
  });
});
