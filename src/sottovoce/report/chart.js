// Draw lines, marks and bars from the data of a figure as SVG: a small part of what a plotting library can, in 9 kB.
var NS = "http://www.w3.org/2000/svg";
var SHAPES = {
  "circle": "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z", "square": "M-3,-3H3V3H-3Z",
  "diamond": "M0,-4.5L4.5,0L0,4.5L-4.5,0Z", "triangle-up": "M0,-4L4,3H-4Z",
  "cross": "M-4,-1.3H-1.3V-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4Z", "triangle-down": "M0,4L4,-3H-4Z"};
var DASHES = {dash: "7 5", dot: "2 4", dashdot: "7 4 2 4"};

function make(parent, tag, attributes, text) {
  var node = document.createElementNS(NS, tag);
  Object.keys(attributes).forEach(function (key) { node.setAttribute(key, attributes[key]); });
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function digits(value, format) {
  var wanted = /^\.(\d+)(~?)([fgs])$/.exec(format || "");
  if (format && /s$/.test(format)) return short(value);
  if (!wanted) return String(value);
  return wanted[3] === "f" ? Number(value).toFixed(+wanted[1]) : String(Number(Number(value).toPrecision(+wanted[1])));
}

function short(value) {
  var units = ["", "k", "M", "G", "T"], step = 0, size = Math.abs(value);
  while (size >= 1000 && step < 4) { size /= 1000; step++; }
  return Number((value / Math.pow(1000, step)).toPrecision(4)) + units[step];
}

// What pointing at a mark tells, from the figure's own words.
function hint(trace, index) {
  var template = trace.hovertemplate || "%{y} at %{x}";
  var of = {x: trace.x[index], y: trace.y[index], text: [].concat(trace.text || [])[index], "fullData.name": trace.name};
  return plain(template.replace(/%\{([\w.]+)(?:\[(\d+)\])?(?::([^}]+))?\}/g, function (_, key, place, format) {
    var value = key === "customdata" ? trace.customdata[index] : of[key];
    if (place !== undefined) value = value[+place];
    return typeof value === "number" ? digits(value, format) : value === undefined ? "" : value;
  }).replace(/<extra>(.*?)<\/extra>/, function (_, name) { return name ? "<br>" + name : ""; }));
}

function scale(axis, values, low, high, bars) {
  var log = axis.type === "log", of = function (value) { return log ? Math.log10(value) : value; };
  var known = values.filter(function (value) { return value !== null && isFinite(of(value)); }).map(of);
  var range = axis.range;
  if (!range) {
    var least = Math.min.apply(null, known), most = Math.max.apply(null, known);
    if (!known.length) { least = 0; most = 1; }
    if (axis.rangemode === "tozero" && !log) { least = Math.min(0, least); most = Math.max(0, most); }
    var room = (most - least || Math.abs(most) || 1) * (bars ? 0.04 : 0.06);
    range = [axis.rangemode === "tozero" && least === 0 ? 0 : least - room, most + room];
  }
  var at = function (value) { return low + (of(value) - range[0]) / (range[1] - range[0] || 1) * (high - low); };
  return {at: at, ticks: ticks(axis, range, log, Math.abs(high - low))};
}

function ticks(axis, range, log, length) {
  if (axis.showticklabels === false) return [];
  var inside = function (value) { return value >= range[0] - 1e-9 && value <= range[1] + 1e-9; };
  if (axis.tickvals) {
    return axis.tickvals.map(function (value, index) { return [value, axis.ticktext ? axis.ticktext[index] : String(value)]; })
      .filter(function (tick) { return inside(log ? Math.log10(tick[0]) : tick[0]); });
  }
  var found = [], step = axis.dtick, wanted = Math.max(2, Math.min(axis.nticks || 6, Math.floor(length / 55)));
  if (log) {
    for (var power = Math.ceil(range[0]); power <= range[1]; power++) found.push([Math.pow(10, power), "1e" + power]);
    return found;
  }
  if (!step || (range[1] - range[0]) / step > 12) {
    var rough = (range[1] - range[0]) / wanted, unit = Math.pow(10, Math.floor(Math.log10(rough)));
    step = [1, 2, 5, 10].map(function (times) { return times * unit; }).find(function (each) { return each >= rough; });
  }
  var places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  for (var count = Math.ceil(range[0] / step - 1e-9); count * step <= range[1] + 1e-9; count++) {
    var value = Number((count * step).toFixed(places + 1));
    found.push([value, (axis.tickformat ? short(value) : value.toFixed(Math.min(places, 8))) + (axis.ticksuffix || "")]);
  }
  return found;
}

function path(points, shape) {
  return points.map(function (point, index) {
    var before = points[index - 1];
    if (!index) return "M" + point;
    if (shape === "hv") return "H" + point[0] + "V" + point[1];
    if (shape === "hvh") return "H" + (before[0] + point[0]) / 2 + "V" + point[1] + "H" + point[0];
    return "L" + point;
  }).join("");
}

function drawScatter(group, trace, xs, ys, marks) {
  var points = [], marker = trace.marker || {}, line = trace.line || {}, mode = trace.mode || "lines";
  trace.x.forEach(function (x, index) {
    if (trace.y[index] === null || x === null) return;
    points.push([xs.at(x), ys.at(trace.y[index]), index]);
  });
  var color = line.color || marker.color;
  if (mode.indexOf("lines") >= 0 && points.length) {
    make(group, "path", {d: path(points.map(function (p) { return [+p[0].toFixed(2), +p[1].toFixed(2)]; }), line.shape),
      fill: "none", stroke: color, "stroke-width": line.width || 2, "stroke-dasharray": DASHES[line.dash] || "none"});
  }
  var every = marker.maxdisplayed ? Math.ceil(points.length / marker.maxdisplayed) : 1;
  points.forEach(function (point, number) {
    if (trace.hoverinfo !== "skip") marks.push({x: point[0], y: point[1], trace: trace, index: point[2]});
    if (mode.indexOf("markers") < 0 || number % every) return;
    var of = function (value) { return Array.isArray(value) ? value[point[2]] : value; };
    var symbol = of(marker.symbol) || "circle", hollow = /-open$/.test(symbol), tint = of(marker.color) || color;
    make(group, "path", {d: SHAPES[symbol.replace("-open", "")] || SHAPES.circle, fill: hollow ? "none" : tint, stroke: tint,
      "stroke-width": 1.5, opacity: of(marker.opacity) || 1,
      transform: "translate(" + point[0].toFixed(2) + " " + point[1].toFixed(2) + ") scale(" + (of(marker.size) || 7) / 8 + ")"});
  });
}

function drawBars(group, figure, box, xs, ys, marks, ink) {
  var stacked = figure.layout.barmode === "stack", gap = figure.layout.bargap || 0.2, count = figure.data.length;
  var ends = {}, unit = Math.abs(ys.at(1) - ys.at(0)), whole = unit * (1 - gap);
  figure.data.forEach(function (trace, number) {
    var bars = make(group, "g", {class: "bars trace"}), fill = fillOf(bars, trace.marker);
    trace.y.forEach(function (place, index) {
      var size = trace.x[index], from = stacked ? ends[place] || 0 : 0, thick = stacked ? whole : whole / count * 0.92;
      var top = ys.at(place) + whole / 2 - (stacked ? whole : (number + 1) * whole / count), x = xs.at(from);
      if (stacked) ends[place] = from + size;
      var width = Math.max(0, xs.at(from + size) - x);
      make(bars, "rect", {x: x, y: top, width: width, height: thick, fill: fill, stroke: trace.marker.line.color});
      marks.push({x: x + width / 2, y: top + thick / 2, trace: trace, index: index});
      if (trace.textposition) make(bars, "text", {class: "bartext", x: x + width + 2, y: top + thick / 2 + 4, fill: ink, "font-size": 12}, trace.text[index]);
    });
  });
}

var patterns = 0;
function fillOf(group, marker) {
  if (!marker.pattern || !marker.pattern.shape) return marker.color;
  var name = "hatch-" + ++patterns;
  var pattern = make(group, "pattern", {id: name, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"});
  make(pattern, "rect", {width: 2.5, height: 7, fill: marker.color});
  return "url(#" + name + ")";
}

function drawLegend(svg, figure, width, ink) {
  var x = 12, rows = [[]];
  figure.data.forEach(function (trace) {
    var name = plain(trace.name), long = 24 + 7 * name.length;
    if (x + long > width && rows[rows.length - 1].length) { rows.push([]); x = 12; }
    rows[rows.length - 1].push([x, name, trace]);
    x += long;
  });
  return {height: 18 * rows.length, draw: function (top) {
    rows.forEach(function (row, number) {
      row.forEach(function (entry) {
        var marker = entry[2].marker || {}, color = marker.color || (entry[2].line || {}).color, y = top + 18 * number;
        make(svg, "rect", {x: entry[0], y: y, width: 12, height: 12, stroke: color, fill: entry[2].type === "bar" ? fillOf(svg, marker) : color});
        make(svg, "text", {class: "legendtext", x: entry[0] + 17, y: y + 10, fill: ink, "font-size": 12}, entry[1]);
      });
    });
  }};
}

// Return an SVG of a figure, and where its marks are; with a title it stands alone on white.
function chart(figure, width, height, title) {
  var layout = figure.layout, ink = title === undefined ? "var(--ink)" : "#1d2329", marks = [];
  var svg = document.createElementNS(NS, "svg");
  [["xmlns", NS], ["class", "main-svg"], ["viewBox", "0 0 " + width + " " + height], ["width", width], ["height", height],
   ["font-family", "system-ui, sans-serif"]].forEach(function (pair) { svg.setAttribute(pair[0], pair[1]); });
  if (title !== undefined) {
    make(svg, "rect", {width: width, height: height, fill: "rgb(255, 255, 255)"});
    make(svg, "text", {x: 14, y: 26, "font-size": 15, "font-weight": 600, fill: ink}, title);
  }
  var bars = figure.data.length && figure.data[0].type === "bar";
  var under = layout.showlegend || (title !== undefined && figure.data.length > 1) ? drawLegend(svg, figure, width, ink) : null;
  var across = plainLines(layout.xaxis.title), up = plainLines(layout.yaxis.title).join(" ");
  var values = function (key) { return [].concat.apply([], figure.data.map(function (trace) { return trace[key]; })); };
  var totals = values("x");
  if (bars && layout.barmode === "stack") totals = figure.data[0].y.map(function (_, index) {
    return figure.data.reduce(function (sum, trace) { return sum + trace.x[index]; }, 0); });
  var levels = values("y").concat((layout.shapes || []).map(function (shape) { return shape.y0; }));
  var foot = 30 + 16 * across.length + (under ? under.height + 8 : 0), top = title === undefined ? 10 : 44;
  var trial = scale(layout.yaxis, levels, height - foot, top).ticks;
  var left = 14 + (up ? 20 : 0) + 7 * trial.reduce(function (most, tick) { return Math.max(most, tick[1].length); }, 0);
  var box = {left: left, right: width - 14, top: top, bottom: height - foot};
  var xs = scale(layout.xaxis, bars ? totals.concat([0]) : totals, box.left, box.right, bars), ys = scale(layout.yaxis, levels, box.bottom, box.top);
  drawAxes(svg, box, xs, ys, ink, across, up, layout.yaxis.showgrid !== false);
  if (bars) drawBars(svg, figure, box, xs, ys, marks, ink);
  else figure.data.forEach(function (trace) { drawScatter(make(svg, "g", {class: "trace"}), trace, xs, ys, marks); });
  drawShapes(svg, layout, box, xs, ys, ink);
  if (under) under.draw(height - under.height - 4);
  return {svg: svg, marks: marks};
}

function plainLines(title) {
  return title && title.text ? String(title.text).split("<br>").map(plain) : [];
}

function drawAxes(svg, box, xs, ys, ink, across, up, grid) {
  var grey = "#808080", soft = "rgba(128,128,128,.25)";
  ys.ticks.forEach(function (tick) {
    var y = ys.at(tick[0]);
    if (grid) make(svg, "line", {x1: box.left, x2: box.right, y1: y, y2: y, stroke: soft});
    make(svg, "text", {class: "ytick", x: box.left - 7, y: y + 4, "text-anchor": "end", "font-size": 12, fill: ink}, tick[1]);
  });
  var last = -Infinity;
  xs.ticks.forEach(function (tick) {
    var x = xs.at(tick[0]);
    make(svg, "line", {x1: x, x2: x, y1: box.top, y2: box.bottom + 4, stroke: soft});
    if (x - last < 7 * tick[1].length + 6) return;
    last = x;
    make(svg, "text", {class: "xtick", x: x, y: box.bottom + 18, "text-anchor": "middle", "font-size": 12, fill: ink}, tick[1]);
  });
  make(svg, "path", {d: "M" + box.left + "," + box.top + "V" + box.bottom + "H" + box.right, fill: "none", stroke: grey});
  across.forEach(function (words, line) {
    make(svg, "text", {class: "xtitle", x: (box.left + box.right) / 2, y: box.bottom + 36 + 15 * line, "text-anchor": "middle", "font-size": 13, fill: ink}, words);
  });
  if (up) make(svg, "text", {class: "ytitle", transform: "translate(14 " + (box.top + box.bottom) / 2 + ") rotate(-90)", "text-anchor": "middle", "font-size": 13, fill: ink}, up);
}

function drawShapes(svg, layout, box, xs, ys, ink) {
  (layout.shapes || []).forEach(function (shape) {
    var y = ys.at(shape.y0);
    make(svg, "line", {x1: box.left, x2: box.right, y1: y, y2: y, stroke: shape.line.color, "stroke-width": 1.5, "stroke-dasharray": DASHES[shape.line.dash] || "none"});
  });
  (layout.annotations || []).forEach(function (note) {
    var paper = !note.xref || note.xref !== "x", x = paper ? box.left + note.x * (box.right - box.left) : xs.at(note.x);
    var y = note.yref === "paper" ? box.bottom - note.y * (box.bottom - box.top) : ys.at(note.y);
    var anchor = {left: "start", right: "end"}[note.xanchor] || "middle";
    make(svg, "text", {class: "annotation-text", x: x + (anchor === "start" ? 3 : anchor === "end" ? -3 : 0), y: y + (note.yanchor === "top" ? 14 : -4),
      "text-anchor": anchor, "font-size": 12, fill: ink}, plain(note.text));
  });
}

// Return a picture as a data URL.
function picture(figure, caption, kind, width, height) {
  var text = new XMLSerializer().serializeToString(chart(figure, width, height, caption).svg);
  var address = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  if (kind === "svg") return Promise.resolve(address);
  return new Promise(function (done, failed) {
    var image = new Image();
    image.onload = function () {
      var canvas = document.createElement("canvas");
      canvas.width = 2 * width;
      canvas.height = 2 * height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      done(canvas.toDataURL("image/png"));
    };
    image.onerror = failed;
    image.src = address;
  });
}

// Tell the mark that is nearest to a finger or a pointer.
function point(plot, tip, drawn, event) {
  var frame = plot.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top, best = null, least = 900;
  drawn.marks.forEach(function (mark) {
    var away = Math.pow(mark.x - x, 2) + Math.pow(mark.y - y, 2);
    if (away < least) { least = away; best = mark; }
  });
  tip.hidden = !best;
  if (!best) return;
  tip.textContent = hint(best.trace, best.index);
  tip.style.left = Math.min(Math.max(0, best.x - tip.offsetWidth / 2), plot.clientWidth - tip.offsetWidth) + "px";
  tip.style.top = Math.max(0, best.y - tip.offsetHeight - 10) + "px";
}
