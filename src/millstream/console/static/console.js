/* What pages need beyond HTML: dark and light, the keyboard, copying, confirmations, JSON in colours. No framework. */
(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Dark and light. The server reads the cookie, so the next page comes in the right colours at once.
  function toggleTheme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
    document.dispatchEvent(new Event("theme"));
  }

  // Copy what is shown, without the buttons around it.
  async function copy(button) {
    const content = button.closest(".body, .card").querySelector("pre.content");
    if (!content) return;
    const before = button.innerHTML;
    try {
      await navigator.clipboard.writeText(content.textContent);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(content);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.innerHTML = before; }, 1500);
  }

  // JSON in colours: text nodes only, so nothing in a message can become HTML.
  const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;
  function colour(pre) {
    if (pre.dataset.coloured || ["text", "hex", "masked", "null"].includes(pre.dataset.form)) return;
    pre.dataset.coloured = "1";
    const text = pre.textContent;
    if (text.length > 200000) return;
    const made = document.createDocumentFragment();
    let at = 0;
    for (const found of text.matchAll(TOKEN)) {
      made.append(text.slice(at, found.index));
      const span = document.createElement("span");
      span.className = found[1] ? (found[2] ? "j-key" : "j-text") : found[3] ? "j-word" : "j-number";
      span.textContent = found[1] || found[0];
      made.append(span);
      if (found[1] && found[2]) made.append(found[2]);
      at = found.index + found[0].length;
    }
    made.append(text.slice(at));
    pre.replaceChildren(made);
  }

  // A dangerous button works once the name was typed.
  function confirmation(input) {
    const button = input.form.querySelector(".button.bad");
    if (!button || button.dataset.locked === "no") return;
    button.disabled = input.value.trim() !== input.dataset.confirm;
  }

  function seek(select) {
    const field = select.form.querySelector(".seek-at");
    field.hidden = !["offset", "time"].includes(select.value);
  }

  function ready(within) {
    all("pre.content", within).forEach((pre) => { if (!pre.closest("details.msg:not([open])")) colour(pre); });
    all("[data-confirm]", within).forEach(confirmation);
    all("[data-seek]", within).forEach(seek);
  }

  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details.msg") && event.target.open) all("pre.content", event.target).forEach(colour);
  }, true);
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-confirm]")) confirmation(event.target);
    if (event.target.matches("[data-filter-rows]")) {
      const needle = event.target.value.trim().toLowerCase();
      all(`${event.target.dataset.filterRows} tbody tr`).forEach((row) => {
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(needle);
      });
    }
  });
  document.addEventListener("change", (event) => { if (event.target.matches("[data-seek]")) seek(event.target); });
  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest(selector);
    if (hit("[data-theme-toggle]")) toggleTheme();
    else if (hit("[data-help]")) document.getElementById("help").showModal();
    else if (hit("[data-copy]")) copy(hit("[data-copy]"));
  });

  // The keyboard.
  let going = 0;
  function step(by) {
    const rows = all("[data-row]").filter((row) => row.offsetParent !== null);
    if (!rows.length) return;
    const now = rows.indexOf(document.activeElement);
    const next = now < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, now + by));
    rows[next].focus();
    rows[next].scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) {
      if (event.key === "Escape" && event.target.matches("input")) { event.preventDefault(); event.target.blur(); }
      return;
    }
    if (Date.now() - going < 1200) {
      going = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const acts = {
      "g": () => { going = Date.now(); },
      "/": () => document.querySelector("[data-search]")?.focus(),
      "j": () => step(1), "k": () => step(-1),
      "n": () => document.querySelector("a[rel=next]")?.click(),
      "b": () => document.querySelector("a[rel=prev]")?.click(),
      "d": toggleTheme,
      "?": () => document.getElementById("help")?.showModal(),
    };
    const act = acts[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // Parts that refresh themselves wait while the page is out of sight, or while somebody works inside of them.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const source = event.detail.elt;
    const timed = (source.getAttribute("hx-trigger") || "").startsWith("every");
    if (timed && (document.hidden || source.contains(document.activeElement))) event.preventDefault();
  });
  // A row that is chosen by the keyboard stays chosen when its table is drawn anew.
  let chosen = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const row = document.activeElement?.closest("[data-row]");
    chosen = row && event.detail.target.contains(row) ? row.getAttribute("href") : null;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    ready(event.detail.target);
    if (chosen) all("[data-row]").find((row) => row.getAttribute("href") === chosen)?.focus();
    chosen = null;
  });
  document.addEventListener("DOMContentLoaded", () => {
    ready(document);
    all(".tabs [aria-current]").forEach((tab) => tab.scrollIntoView({ block: "nearest", inline: "center" }));
  });
  window.millstream = { ready, all };
})();
