const changed = new Set();
const memory = (() => {
  const data = JSON.parse(JSON.stringify($memory)), own = NAMESPACE;
  const at = (name) => data[name ?? own] ?? {};
  const write = (name) => { WRITE changed.add(name ?? own); return data[name ?? own] ??= {}; };
  return {
    get: (key, name) => at(name)[key],
    has: (key, name) => Object.hasOwn(at(name), key),
    list: (name) => Object.keys(at(name)),
    getAll: (name) => at(name),
    listNamespaces: () => Object.keys(data),
    set: (key, value, name) => write(name)[key] = value ?? null,
    append: (key, value, name) => {
      const old = at(name)[key], list = Array.isArray(old) ? old : old === undefined ? [] : [old];
      return write(name)[key] = [...list, value];
    },
    increment: (key, by = 1, name) => {
      const old = at(name)[key] ?? 0;
      if (typeof old !== 'number') throw new TypeError(`${key} is not a number`);
      return write(name)[key] = old + by;
    },
    delete: (key, name) => { const had = Object.hasOwn(at(name), key); delete write(name)[key]; return had; },
    clear: (name) => { write(name); data[name ?? own] = {}; },
    $changed: () => Object.fromEntries([...changed].map((name) => [name, data[name]])),
  };
})();
