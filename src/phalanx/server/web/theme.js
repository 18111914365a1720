// A classic script in the head: the theme is set before anything is painted.
{
  const chosen = (() => {
    try {
      return localStorage.getItem("phalanx.theme");
    } catch {
      return null;
    }
  })();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
