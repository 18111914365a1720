// The canvas: pan by dragging, zoom by the wheel or + and −, choose by clicking or by the arrow keys.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../core/dom.js";
import { deviceAt, placeOf } from "./layout.js";
import { inks, outlinesOf, paint, paletteOf } from "./paint.js";

const SCALE_MAX = 12;
const MARGIN = 4;
const PICTURE_MAX = 8_000_000;

const fitted = (layout, width, height) => {
  const scale = Math.min(4, width / (layout.width + 16), height / (layout.height + 16));
  return { scale, x: layout.width / 2 - width / scale / 2, y: layout.height / 2 - height / scale / 2 };
};

const zoomed = (view, factor, px, py, least) => {
  const scale = Math.min(SCALE_MAX, Math.max(least, view.scale * factor));
  return { scale, x: view.x + px / view.scale - px / scale, y: view.y + py / view.scale - py / scale };
};

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Everything that changes with every frame stays out of the components: they draw nothing while the map is moved.
class Painter {
  view = null;
  #canvas;
  #request = 0;
  #picture = {};
  #all = null;
  scene = {};

  constructor(canvas) {
    this.#canvas = canvas;
    // What nothing shines through is cheaper to put on the screen.
    this.context = canvas.getContext("2d", { alpha: false });
  }

  get ratio() {
    return Math.min(2, devicePixelRatio || 1);
  }

  resize() {
    const { clientWidth, clientHeight } = this.#canvas;
    this.#canvas.width = clientWidth * this.ratio;
    this.#canvas.height = clientHeight * this.ratio;
    // A map that shows all goes on to show all; one that was moved stays where it is.
    if (this.view && this.view === this.#all) this.fit();
    else this.draw();
  }

  fit() {
    this.view = this.#all = fitted(this.scene.layout, this.#canvas.clientWidth, this.#canvas.clientHeight);
    this.draw();
  }

  show(scene) {
    const fresh = this.scene.layout !== scene.layout;
    this.scene = scene;
    if (fresh || !this.view) this.fit();
    else this.draw();
  }

  draw() {
    this.#request ||= requestAnimationFrame(() => {
      this.#request = 0;
      if (!this.scene.layout || !this.view) return;
      this.#paint({ ...this.view, scale: this.view.scale * this.ratio });
    });
  }

  // Moving the map copies a picture of all of it; only what is too large for one is drawn anew with every frame.
  #paint(view) {
    const { width, height } = this.#canvas;
    const whole = this.#whole(view.scale);
    if (!whole) return paint(this.context, { ...this.scene, view, width, height });
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.fillStyle = this.scene.ink.ground;
    this.context.fillRect(0, 0, width, height);
    return this.context.drawImage(whole, Math.round((-MARGIN - view.x) * view.scale), Math.round((-MARGIN - view.y) * view.scale));
  }

  #whole(scale) {
    const width = Math.ceil((this.scene.layout.width + 2 * MARGIN) * scale);
    const height = Math.ceil((this.scene.layout.height + 2 * MARGIN) * scale);
    if (width * height > PICTURE_MAX) return null;
    if (this.#picture.scene !== this.scene || this.#picture.scale !== scale) {
      const canvas = new OffscreenCanvas(width, height);
      paint(canvas.getContext("2d", { alpha: false }), { ...this.scene, view: { x: -MARGIN, y: -MARGIN, scale }, width, height });
      this.#picture = { scene: this.scene, scale, canvas };
    }
    return this.#picture.canvas;
  }

  at(event) {
    const box = this.#canvas.getBoundingClientRect();
    return { px: event.clientX - box.left, py: event.clientY - box.top };
  }

  deviceAt({ px, py }) {
    return this.view && deviceAt(this.scene.layout, this.view.x + px / this.view.scale, this.view.y + py / this.view.scale);
  }

  zoom(factor, px = this.#canvas.clientWidth / 2, py = this.#canvas.clientHeight / 2) {
    const least = fitted(this.scene.layout, this.#canvas.clientWidth, this.#canvas.clientHeight).scale * 0.7;
    this.view = zoomed(this.view, factor, px, py, least);
    this.draw();
  }

  pan(dx, dy) {
    this.view = { ...this.view, x: this.view.x - dx / this.view.scale, y: this.view.y - dy / this.view.scale };
    this.draw();
  }

  // Brings a chosen GPU into sight.
  reveal(place) {
    const { clientWidth, clientHeight } = this.#canvas;
    const px = (place.x - this.view.x) * this.view.scale;
    const py = (place.y - this.view.y) * this.view.scale;
    if (px < 0 || py < 0 || px > clientWidth - 20 || py > clientHeight - 20) this.pan(clientWidth / 2 - px, clientHeight / 2 - py);
  }
}

const usePainter = (scene) => {
  const canvas = useRef();
  const painter = useRef(null);
  useLayoutEffect(() => {
    painter.current = new Painter(canvas.current);
    const observer = new ResizeObserver(() => painter.current.resize());
    observer.observe(canvas.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => painter.current.show(scene), [scene]);
  return { canvas, painter };
};

// Drags move the map; a press that does not move chooses.
const useDrag = (painter, choose, hover) => {
  const drag = useRef(null);
  return {
    onPointerDown: (event) => {
      event.currentTarget.setPointerCapture(event.pointerId);
      drag.current = { x: event.clientX, y: event.clientY, moved: false };
    },
    onPointerMove: (event) => {
      if (!drag.current) return hover(painter.current.at(event), painter.current.deviceAt(painter.current.at(event)));
      const dx = event.clientX - drag.current.x;
      const dy = event.clientY - drag.current.y;
      if (!drag.current.moved && Math.abs(dx) + Math.abs(dy) < 4) return undefined;
      drag.current = { x: event.clientX, y: event.clientY, moved: true };
      painter.current.pan(dx, dy);
      return hover(null, null);
    },
    onPointerUp: (event) => {
      if (drag.current && !drag.current.moved) choose(painter.current.deviceAt(painter.current.at(event))?.device ?? null);
      drag.current = null;
    },
    onPointerLeave: () => hover(null, null),
  };
};

export const MapCanvas = ({ data, found, marks, chosen, choose, describe, theme, label }) => {
  const { layout, frame, legend, colour, shared } = data;
  const place = chosen === null || chosen >= layout.devices ? null : placeOf(layout, chosen);
  const scene = useMemo(() => {
    const palette = paletteOf(colour, legend);
    return { layout, frame, shared, found, marks, chosen: place, palette, outlines: outlinesOf(colour, legend, palette), ink: inks() };
  }, [data, found, marks, chosen, theme]);
  const { canvas, painter } = usePainter(scene);
  const [tip, setTip] = useState(null);
  const hover = (point, device) => setTip(device ? { ...point, text: describe(device) } : null);
  const drag = useDrag(painter, choose, hover);
  useEffect(() => {
    const element = canvas.current;
    const onWheel = (event) => {
      event.preventDefault();
      const { px, py } = painter.current.at(event);
      painter.current.zoom(Math.exp(-event.deltaY * 0.0015), px, py);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, []);
  const onKeyDown = (event) => {
    const step = STEPS[event.key];
    if (step && event.shiftKey) painter.current.pan(-60 * step[0], -60 * step[1]);
    else if (step) {
      const columns = place ? layout.columns[place.node] : 1;
      const next = Math.min(layout.devices - 1, Math.max(0, (chosen ?? -1) + step[0] + step[1] * columns));
      choose(next);
      painter.current.reveal(placeOf(layout, next));
    } else if (event.key === "+" || event.key === "=") painter.current.zoom(1.3);
    else if (event.key === "-") painter.current.zoom(1 / 1.3);
    else if (event.key === "0") painter.current.fit();
    else return;
    event.preventDefault();
  };
  return html`
    <div class="map">
      <canvas ref=${canvas} tabindex="0" role="application" aria-label=${label} aria-describedby="map-help" onKeyDown=${onKeyDown} ...${drag}></canvas>
      ${tip && html`<div class="map-tip" style=${{ left: `${tip.px + 14}px`, top: `${tip.py + 14}px` }}>${tip.text}</div>`}
      <div class="map-buttons"><button type="button" class="icon" aria-label="Zoom in" onClick=${() => painter.current.zoom(1.5)}>+</button><button type="button" class="icon" aria-label="Zoom out" onClick=${() => painter.current.zoom(1 / 1.5)}>−</button><button type="button" class="icon" aria-label="Show all" onClick=${() => painter.current.fit()}>⤢</button></div>
    </div>
    <p id="map-help" class="hint">Drag to move, wheel or + and − to zoom, 0 to see all. Arrow keys choose a GPU, with Shift they move the map.</p>
  `;
};
