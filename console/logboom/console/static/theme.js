// Sets the theme that the viewer chose before the page is painted.
"use strict";
try {
  const chosen = localStorage.getItem("logboom-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage is not allowed: the system's theme counts */ }
