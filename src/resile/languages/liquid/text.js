const $raw = new Map(), $parse = JSON.parse, $show = Object.prototype.toString;
if (typeof output === 'object' && output !== null && '' in $texts) $raw.set(output, $texts['']);
if (typeof outputs === 'object') for (const name of Object.keys($texts)) if (name in outputs) $raw.set(outputs[name], $texts[name]);
const $text = (value) => $raw.get(value) ?? (typeof value === 'object' ? JSON.stringify(value) : String(value));
JSON.parse = (value, ...rest) => $parse(typeof value === 'object' && value !== null ? $text(value) : value, ...rest);
const $define = (name, value) => { for (const kind of [Object, Number, Boolean])
  if (kind === Object || !Object.hasOwn(kind.prototype, name))
    Object.defineProperty(kind.prototype, name, {value, writable: true, configurable: true}); };
for (const name of METHODS) $define(name, function (...given) { return $text(this)[name](...given); });
Object.prototype.toString = function () { return $raw.has(this) ? $raw.get(this) : $show.call(this); };
