// What htmx does not do by itself: live parts that renew themselves without disturbing whoever reads or works in them.
"use strict";

(() => {
  const NOTE_MS = 15000; // how long a refusal stays beside its row
  const answers = new Map(); // a live part's last answer, by its id
  const isLive = (elt) => elt.hasAttribute("data-live");

  // A live part waits while nobody sees it, while a note in it is to be read, while a button in it is being pressed and
  // while text in it is selected.
  const isHeld = (part) => {
    const chosen = document.getSelection();
    return (
      document.hidden ||
      part.querySelector("[data-hold], :active") !== null ||
      (chosen !== null && !chosen.isCollapsed && part.contains(chosen.anchorNode))
    );
  };

  const openIn = (part) => [...part.querySelectorAll("details[open][id]")].map((details) => details.id);

  // The reader is at the transcript's end if the tail is in sight: above the message box, or within the window.
  const isAtEnd = (tail) => {
    const box = document.getElementById("message");
    return tail.getBoundingClientRect().top <= (box ? box.getBoundingClientRect().top : window.innerHeight) + 48;
  };
  const showEnd = () => document.getElementById("tail")?.scrollIntoView({ block: "end" });

  let wasOpen = [];
  let wasAtEnd = false;

  document.addEventListener("htmx:beforeRequest", (event) => {
    const { elt } = event.detail;
    if (isLive(elt) && isHeld(elt)) event.preventDefault();
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { requestConfig, serverResponse, target, xhr } = event.detail;
    const part = requestConfig.elt;
    if (isLive(part) && part.id !== "tail" && xhr.status === 200) {
      if (answers.get(part.id) === serverResponse || isHeld(part)) {
        event.detail.shouldSwap = false;
        return;
      }
      answers.set(part.id, serverResponse);
    } else if (part.id !== "tail") {
      answers.clear();
    }
    wasOpen = openIn(target);
    wasAtEnd = target.id === "tail" && isAtEnd(target);
  });

  // At once after the swap, not when it has settled: another part may be swapped in between.
  document.addEventListener("htmx:afterSwap", () => {
    wasOpen.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    wasOpen = [];
    if (wasAtEnd) showEnd();
    wasAtEnd = false;
  });

  const look = () => document.body.dispatchEvent(new CustomEvent("refresh"));
  document.addEventListener("visibilitychange", () => document.hidden || look());

  document.addEventListener("htmx:load", (event) => {
    const added = event.detail.elt;
    const notes = [...added.querySelectorAll("[data-hold]")];
    setTimeout(() => notes.forEach((note) => note.remove()), NOTE_MS);
  });

  const lost = (isLost) => () => {
    document.getElementById("offline").hidden = !isLost;
  };
  for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(name, lost(true));
  }
  document.addEventListener("htmx:afterOnLoad", (event) => event.detail.xhr.status < 400 && lost(false)());

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("[data-submits]")) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    if (!location.hash && !new URLSearchParams(location.search).has("from")) showEnd();
  });
})();
