// Navigation, the connection mark, and the account.
import { serverNow } from "../core/clock.js";
import { html } from "../core/dom.js";
import { connection } from "../core/live.js";
import { momentIn } from "../core/moment.js";
import { route } from "../core/route.js";
import { logOut, session } from "../core/session.js";
import { useStore } from "../core/store.js";
import { say } from "../parts/toast.js";
import { goTo } from "./moment-bar.js";
import { ThemeButton } from "./theme-button.js";
import { NAVIGATION, VIEWS } from "./views.js";

const ConnectionMark = () => {
  const { connected, refused } = useStore(connection);
  const words =
    connected === null
      ? "connecting"
      : connected
        ? "live"
        : refused === 403
          ? "no live news: you have no role anywhere"
          : "connection lost, trying again";
  const kind = connected ? "live" : connected === null ? "connecting" : "lost";
  return html`<span class="connection connection-${kind}" role="status"><span aria-hidden="true">${connected ? "●" : "○"}</span> ${words}</span>`;
};

const FileMark = ({ file }) => html`<span class="connection" title="A journal is shown: nothing in it can be changed.">${file.name}, not live</span>`;

const Account = () => {
  const { user, role } = useStore(session);
  const leave = async () => {
    try {
      await logOut();
    } catch (error) {
      say(`You are still logged in: ${error.message}.`);
    }
  };
  return html`
    <span class="account" title=${role ? `role: ${role}` : ""}>${user}</span>
    <button type="button" onClick=${leave}>Log out</button>
  `;
};

// A moment ago: from there the slider goes back to the first record.
const lookBack = () => goTo(serverNow() - 1_000);

export const Header = ({ current }) => {
  const { file } = useStore(session);
  const at_ms = momentIn(useStore(route).query);
  return html`
  <header class="bar">
    <a class="home" href="/ui/overview"><img src="/ui/static/icon.svg" alt="" width="20" height="20" /> phalanx</a>
    <nav aria-label="Views">
      ${NAVIGATION.filter((name) => VIEWS[name].offered?.() ?? true).map(
        (name) => html`<a key=${name} href="/ui/${name}" aria-current=${name === current ? "page" : undefined}>${VIEWS[name].title}</a>`,
      )}
    </nav>
    <div class="bar-end">
      ${file ? html`<${FileMark} file=${file} /><${ThemeButton} />` : html`${at_ms === null ? html`<${ConnectionMark} /><button type="button" onClick=${lookBack}>Look back</button>` : html`<span class="connection">the past, not live</span>`}<${ThemeButton} /><${Account} />`}
    </div>
  </header>
`;
};
