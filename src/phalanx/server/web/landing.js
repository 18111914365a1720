const byId = (id) => document.getElementById(id);

byId("address").textContent = location.origin;

fetch("/readyz").then((response) => {
  byId("ready").textContent = response.ok ? "ready" : "not ready yet";
});

byId("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const response = await fetch("/api/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token: byId("token").value.trim() }),
  });
  if (response.ok) {
    location.href = "/api/v1/docs";
  } else {
    byId("problem").textContent = (await response.json()).message;
  }
});
