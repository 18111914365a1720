// An address that no view has.
import { html } from "../core/dom.js";

const Lost = () => html`
  <h1>Nothing here</h1>
  <p>There is no view at this address. Go to the <a href="/ui/overview">overview</a> or to the <a href="/ui/jobs">jobs</a>.</p>
`;
export default Lost;
