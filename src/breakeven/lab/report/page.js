"use strict";
// Paints the charts in the colours of the page, draws each when it comes into view, and redraws
// when the page turns light or dark. Figures carry no colours of their own.
(() => {
  const store = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const drawn = new Set();
  const chosen = {}; // chart -> number of its view
  const STROKES = { dash: "7 4", dot: "2.5 3", dashdot: "9 3 2.5 3" };
  const hidden = {}; // chart -> names of traces the reader has switched off

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const theme = () => ({
    ink: css("--ink"), quiet: css("--quiet"), line: css("--line"), band: css("--band"),
    paper: css("--paper"), bad: css("--bad"), font: css("--sans"),
    stages: {
      frontend: css("--stage-1"), "middle-end": css("--stage-2"), backend: css("--stage-3"),
      unattributed: "rgba(0,0,0,0)",
    },
  });
  const colour = (meta) => {
    if (meta.stage) return theme().stages[meta.stage];
    const pair = store.colours[meta.compiler] || store.colours.eager || ["#59626e", "#aab3bf"];
    return pair[dark.matches ? 1 : 0];
  };
  const faded = (hex, share) => {
    const part = (from) => parseInt(hex.slice(from, from + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${share})`;
  };

  const painted = (trace, look) => {
    const made = structuredClone(trace);
    const meta = trace.meta;
    const main = colour(meta);
    if (meta.role === "fan") return Object.assign(made, { fillcolor: faded(main, 0.16) });
    if (meta.role === "stage") {
      const hatched = meta.stage === "unattributed";
      made.marker.color = hatched ? look.paper : main;
      made.marker.line.color = hatched ? look.quiet : look.paper;
      if (hatched) made.marker.pattern = { shape: "/", fgcolor: look.quiet, bgcolor: look.paper, size: 7, solidity: 0.22 };
      made.textfont = { color: hatched ? look.ink : css("--on-stage"), size: 11 };
      return made;
    }
    if (made.line) made.line.color = main;
    if (made.marker) made.marker.color = main;
    if (meta.role === "walk") made.line = { ...made.line, width: 1, color: faded(main, 0.55) };
    for (const bar of ["error_x", "error_y"]) {
      if (!made[bar]) continue;
      made[bar].color = main;
      for (const side of ["array", "arrayminus"]) made[bar][side] = made[bar][side].map((width) => width ?? NaN);
    }
    if (meta.role === "kept" && made.error_x) made.error_x.thickness = 1;
    return made;
  };

  const axis = (given, look) => ({
    gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, showline: false,
    tickfont: { color: look.quiet, size: 12 }, fixedrange: touch, ...given,
    title: { ...(given.title || {}), font: { color: look.quiet, size: 12 }, standoff: 10 },
  });

  // Rows are named inside the plot, above their marks; where there is room, beside it instead.
  const roomy = (figure, width) => figure.layout.yaxis.showticklabels === false && width >= 760;

  const beside = (given) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `bold 12px ${css("--sans")}`;
    const width = (text) => pen.measureText(text.replace(/<[^>]*>/g, "").replace(/&\w+;/g, "&")).width;
    const room = 24 + Math.max(0, ...given.annotations.map((note) => width(note.text)));
    for (const note of given.annotations) Object.assign(note, { xshift: -room, yshift: 0, yanchor: "middle" });
    if (!given.barmode) given.height = 76 + 0.75 * (given.height - 76);
    return room;
  };

  const layout = (figure, look, width) => {
    const given = structuredClone(figure.layout);
    const left = roomy(figure, width) ? beside(given) : given.yaxis.showticklabels === false ? 4 : 62;
    for (const shape of given.shapes || []) {
      if (shape.name === "noise") shape.fillcolor = look.band;
      else shape.line.color = shape.name === "one" ? look.ink : look.quiet;
      if (shape.name === "calls") shape.line.dash = "dot";
    }
    for (const note of given.annotations || []) {
      note.font = { size: 12, color: note.name === "failed" ? look.bad : note.name === "quiet" ? look.quiet : look.ink };
    }
    const axes = {};
    for (const key of ["xaxis", "yaxis", "yaxis2"]) if (given[key]) axes[key] = axis(given[key], look);
    return {
      ...given, ...axes, showlegend: false, autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: left, r: 14, t: 10, b: 50 },
      font: { family: look.font, size: 12, color: look.ink },
      dragmode: touch ? false : "zoom",
      hoverlabel: { bgcolor: look.paper, bordercolor: look.line, font: { color: look.ink, family: look.font, size: 12 } },
    };
  };

  const shown = (key, index) => {
    const views = store.charts[key].views;
    return !views.length || views[chosen[key] || 0].includes(index);
  };

  const draw = (key) => {
    const figure = store.charts[key];
    const look = theme();
    const data = figure.data.map((trace, index) => {
      const made = painted(trace, look);
      made.visible = shown(key, index) && !(hidden[key] && hidden[key].has(trace.name));
      return made;
    });
    drawn.add(key);
    legend(key);
    const place = document.getElementById(key);
    place.style.minHeight = "";
    place.dataset.roomy = roomy(figure, place.clientWidth);
    const config = { displayModeBar: false, responsive: true, showTips: false };
    return Plotly.react(place, data, layout(figure, look, place.clientWidth), config);
  };

  const legend = (key) => {
    const place = document.querySelector(`.legend[data-chart="${key}"]`);
    if (!place) return;
    const names = new Map();
    store.charts[key].data.forEach((trace, index) => {
      if (shown(key, index) && !names.has(trace.name)) names.set(trace.name, trace);
    });
    place.replaceChildren(...[...names].map(([name, trace]) => chip(key, name, trace)));
  };

  const chip = (key, name, trace) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(!(hidden[key] && hidden[key].has(name))));
    const mark = document.createElement("i");
    mark.style.setProperty("--dot", colour(trace.meta));
    if (trace.meta.stage) {
      mark.className = `box ${trace.meta.stage}`;
    } else {
      const dash = trace.meta.policy && trace.line ? trace.line.dash : "solid";
      mark.className = "stroke";
      mark.innerHTML = `<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke="currentColor" stroke-width="2.5" stroke-dasharray="${STROKES[dash] || "none"}"/></svg>`;
    }
    button.append(mark, name);
    button.addEventListener("click", () => {
      const off = (hidden[key] ||= new Set());
      if (!off.delete(name)) off.add(name);
      draw(key);
      refocus(key, name);
    });
    return button;
  };
  const refocus = (key, name) => { // the legend was rebuilt: keep the reader's focus
    for (const button of document.querySelectorAll(`.legend[data-chart="${key}"] button`)) {
      if (button.textContent === name) button.focus();
    }
  };

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target.id)) {
        seen.unobserve(entry.target);
        draw(entry.target.id);
      }
    }
  }, { rootMargin: "500px" });

  // Wakes what `root` holds: charts, their controls, copy buttons, and the labels of cells that
  // stand alone on a narrow screen.
  const wake = (root) => {
    for (const plot of root.querySelectorAll(".plot")) seen.observe(plot);
    for (const select of root.querySelectorAll("select[data-chart]")) {
      select.addEventListener("change", () => {
        chosen[select.dataset.chart] = Number(select.value);
        draw(select.dataset.chart);
      });
    }
    for (const button of root.querySelectorAll("button.copy")) {
      button.addEventListener("click", () => copied(document.getElementById(button.dataset.copy).textContent, button));
    }
    for (const table of root.querySelectorAll(".cards table")) {
      const titles = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
      for (const row of table.tBodies[0].rows) {
        let index = 0;
        for (const cell of row.cells) {
          cell.dataset.label = cell.colSpan > 1 ? "outcome" : titles[index];
          index += cell.colSpan;
        }
      }
    }
  };

  // A large study keeps each subject packed until it is opened, and plotly's script with them.
  const unpacked = (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const open = async (fold) => {
    const text = fold.dataset.packed;
    if (!text) return;
    delete fold.dataset.packed;
    const part = JSON.parse(await unpacked(text));
    Object.assign(store.charts, part.charts);
    const body = document.createElement("div");
    body.innerHTML = part.html;
    fold.append(body);
    wake(body);
  };
  for (const fold of document.querySelectorAll("details.subject")) {
    fold.addEventListener("toggle", () => open(fold));
  }

  dark.addEventListener("change", () => drawn.forEach(draw));
  window.addEventListener("resize", () => drawn.forEach((key) => {
    const place = document.getElementById(key);
    if (place.clientWidth && place.dataset.roomy !== String(roomy(store.charts[key], place.clientWidth))) {
      Plotly.Plots.resize(place).then(() => draw(key)); // first the width, else the margin is cut
    }
  }));
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    seen.disconnect();
    Object.keys(store.charts).forEach(draw);
  });

  const copied = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea"); // a page from a file has no clipboard
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  const start = async () => {
    const packed = document.querySelector('#plotly[type="text/plain"]');
    if (packed) {
      const script = document.createElement("script");
      script.textContent = await unpacked(packed.textContent);
      document.head.append(script);
    }
    wake(document);
  };
  start();
})();
