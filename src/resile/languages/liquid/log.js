const $said = [];
const log = (...parts) => {
  const text = () => parts.map((part) => typeof part === 'string' ? part : JSON.stringify(part)).join(' ');
  if ($said.length < 100) $said.push(text().slice(0, 500));
};
const console = {log, info: log, warn: log, error: log, debug: log};
