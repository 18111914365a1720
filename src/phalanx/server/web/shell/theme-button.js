// Light, dark, or as the system has it.
import { html, useState } from "../core/dom.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const SIGN = { auto: "◐", light: "☀", dark: "☾" };

const present = () => document.documentElement.dataset.theme ?? "auto";

const apply = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("phalanx.theme");
    else localStorage.setItem("phalanx.theme", theme);
  } catch {
    // It lasts as long as the page then.
  }
  dispatchEvent(new Event("themechange"));
};

export const ThemeButton = () => {
  const [theme, setTheme] = useState(present());
  const turn = () => {
    apply(NEXT[theme]);
    setTheme(NEXT[theme]);
  };
  const label = `Theme: ${theme}. Change to ${NEXT[theme]}.`;
  return html`<button type="button" class="icon" aria-label=${label} title=${label} onClick=${turn}><span aria-hidden="true">${SIGN[theme]}</span></button>`;
};
