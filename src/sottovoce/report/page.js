"use strict";

function offer(content, name, type) {
  var link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], {type: type}));
  link.download = name;
  link.click();
  setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
}

function line(cells) {
  return cells.map(function (cell) {
    var text = cell === null || cell === undefined ? "" : String(cell);
    // A spreadsheet runs what begins like a formula; a run may have any name.
    if (/^[=+\-@\t\r]/.test(text) && isNaN(Number(text))) text = "'" + text;
    return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  }).join(",") + "\n";
}

function plain(text) {
  // plotly's names are escaped and its hover texts have <b> and <br>.
  var words = new DOMParser().parseFromString(String(text || "").replace(/<br>/g, "; "), "text/html");
  return words.body.textContent;
}

// One line a point: the line's name, both coordinates as the axes name them, and what pointing at it tells.
function figureCsv(figure) {
  var title = function (axis) { return plain(axis && axis.title && axis.title.text); };
  var lines = [line(["series", title(figure.layout.xaxis) || "x", title(figure.layout.yaxis) || "y", "note"])];
  figure.data.forEach(function (trace) {
    (trace.x || []).forEach(function (x, index) {
      var told = Array.isArray(trace.text) ? trace.text[index] : trace.customdata ? [].concat(trace.customdata[index]).join("; ") : "";
      lines.push(line([plain(trace.name), x, trace.y[index], plain(told)]));
    });
  });
  return lines.join("");
}

{% include "chart.js" %}

function tools(plot, figure) {
  var caption = plot.parentNode.querySelector("figcaption"), title = caption.textContent;
  var box = document.createElement("span");
  box.className = "tools";
  ["PNG", "SVG", "CSV"].forEach(function (kind) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.setAttribute("aria-label", "Save as " + kind + ": " + title);
    button.addEventListener("click", function () {
      if (kind === "CSV") return offer(figureCsv(figure), plot.id + ".csv", "text/csv");
      picture(figure, title, kind.toLowerCase(), 900, Math.max(520, plot.clientHeight)).then(function (address) {
        var link = document.createElement("a");
        link.href = address;
        link.download = plot.id + "." + kind.toLowerCase();
        link.click();
      });
    });
    box.appendChild(button);
  });
  caption.appendChild(box);
}

function draw(place, figure) {
  var plot = document.getElementById(place), tip = document.createElement("p"), drawn = null;
  plot.data = figure.data;
  plot.layout = figure.layout;
  tip.className = "tip";
  tip.hidden = true;
  tools(plot, figure);
  function again() {
    if (!plot.clientWidth || matchMedia("print").matches) return;  // on paper it is scaled as it is
    if (drawn) drawn.svg.remove();
    drawn = chart(figure, plot.clientWidth, plot.clientHeight);
    plot.prepend(drawn.svg);
  }
  plot.appendChild(tip);
  again();
  new ResizeObserver(again).observe(plot);
  ["pointermove", "click"].forEach(function (happening) {
    plot.addEventListener(happening, function (event) { if (drawn) point(plot, tip, drawn, event); });
  });
  plot.addEventListener("pointerleave", function () { tip.hidden = true; });
}

document.querySelectorAll(".matrix").forEach(function (matrix) {
  // The words move from the browser's tooltip, which a finger cannot reach, to a line below.
  var line = matrix.nextElementSibling;
  line.textContent = "Point at a cell, or tap it, to see its runs.";
  matrix.querySelectorAll(".cell").forEach(function (cell) {
    var words = cell.title;
    cell.removeAttribute("title");
    ["mouseenter", "focus", "click"].forEach(function (happening) {
      cell.addEventListener(happening, function () { line.textContent = words; });
    });
  });
});

function rank(row, column) {
  var cell = row.cells[column], value = cell.dataset.value;
  if (value === undefined) value = cell.textContent.trim();
  if (value === "" || value === "—") return null;
  var number = Number(value.replace(/(\d),(?=\d{3})/g, "$1"));
  return isNaN(number) ? value.toLowerCase() : number;
}

// What is not known stands last, whichever way a table is sorted.
function sortBy(table, column, descending) {
  var body = table.tBodies[0], rows = Array.from(body.rows);
  rows.sort(function (one, other) {
    var a = rank(one, column), b = rank(other, column);
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    var order = typeof a === "number" ? (a < b ? -1 : a > b ? 1 : 0) : a.localeCompare(b);
    return descending ? -order : order;
  });
  rows.forEach(function (row) { body.appendChild(row); });
}

function tableCsv(table) {
  var above = [];
  Array.from(table.tHead.rows).slice(0, -1).forEach(function (row) {
    Array.from(row.cells).forEach(function (cell) { for (var i = 0; i < cell.colSpan; i++) above.push(cell.textContent); });
  });
  var last = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
  var lines = [line(last.map(function (cell, index) { return [above[index], cell.textContent].filter(Boolean).join(": "); }))];
  Array.from(table.tBodies[0].rows).forEach(function (row) {
    if (!row.hidden) lines.push(line(Array.from(row.cells).map(function (cell) { return cell.dataset.value || cell.textContent.trim(); })));
  });
  return lines.join("");
}

function sift(asked) {
  var words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  var fits = function (text) { return words.every(function (word) { return text.toLowerCase().indexOf(word) >= 0; }); };
  document.querySelectorAll(".sorts tbody tr").forEach(function (row) { row.hidden = !fits(row.textContent); });
}

document.querySelectorAll(".sorts, .matrix").forEach(function (holder, number) {
  var table = holder.querySelector("table"), box = document.createElement("div");
  box.className = "sift";
  if (holder.classList.contains("sorts")) {
    Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells).forEach(function (head, column) {
      head.tabIndex = 0;
      function turn() {
        var descending = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("[aria-sort]").forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sortBy(table, column, descending);
      }
      head.addEventListener("click", turn);
      head.addEventListener("keydown", function (pressed) { if (pressed.key === "Enter") turn(); });
    });
    if (!document.getElementById("sift") && table.tBodies[0].rows.length > 3) {
      var input = document.createElement("input");
      input.id = "sift";
      input.type = "search";
      input.placeholder = "Filter the tables, e.g. fl-top yes";
      input.setAttribute("aria-label", "Filter the tables: rows that hold all these words");
      input.addEventListener("input", function () { sift(input.value); });
      box.appendChild(input);
    }
  }
  var button = document.createElement("button");
  button.type = "button";
  button.textContent = "CSV";
  button.setAttribute("aria-label", "Save the table as CSV: " + holder.getAttribute("aria-label"));
  button.addEventListener("click", function () { offer(tableCsv(table), "table-" + (number + 1) + ".csv", "text/csv"); });
  box.appendChild(button);
  holder.parentNode.insertBefore(box, holder);
});

// Only a page that `report --watch` serves calls this.
function follow(state) {
  setInterval(function () {
    fetch("state", {cache: "no-store"}).then(function (answer) { return answer.text(); }).then(function (now) {
      // Not while somebody reads a menu or types; the next look comes soon.
      if (now !== state && document.activeElement.tagName !== "INPUT") location.reload();
    }).catch(function () { document.getElementById("watching").textContent = "No longer followed: the command has ended."; });
  }, 2000);
}
