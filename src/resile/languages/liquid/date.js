const Date = class {
  constructor(at) { this.at = typeof at === 'number' ? at : $now; }
  static now() { return $now; }
  getTime() { return this.at; }
  valueOf() { return this.at; }
  toJSON() { return this.toISOString(); }
  toString() { return this.toISOString(); }
  getFullYear() { return +this.toISOString().slice(0, 4); }
  getMonth() { return +this.toISOString().slice(5, 7) - 1; }
  getDate() { return +this.toISOString().slice(8, 10); }
  getHours() { return +this.toISOString().slice(11, 13); }
  getMinutes() { return +this.toISOString().slice(14, 16); }
  getDay() { return (Math.floor(this.at / 864e5) + 4) % 7; }
  /* Days since 1970 to a date, as calendars of any language do it. */
  toISOString() {
    const days = Math.floor(this.at / 864e5), rest = this.at - days * 864e5, z = days + 719468,
      era = Math.floor(z / 146097), doe = z - era * 146097,
      yoe = Math.floor((doe - Math.floor(doe / 1460) + Math.floor(doe / 36524) - Math.floor(doe / 146096)) / 365),
      doy = doe - (365 * yoe + Math.floor(yoe / 4) - Math.floor(yoe / 100)), mp = Math.floor((5 * doy + 2) / 153),
      d = doy - Math.floor((153 * mp + 2) / 5) + 1, m = mp < 10 ? mp + 3 : mp - 9, y = yoe + era * 400 + (m <= 2 ? 1 : 0),
      p = (n, w = 2) => String(n).padStart(w, '0');
    const time = `${p(Math.floor(rest / 36e5))}:${p(Math.floor(rest / 6e4) % 60)}:${p(Math.floor(rest / 1e3) % 60)}`;
    return `${p(y, 4)}-${p(m)}-${p(d)}T${time}.${p(Math.floor(rest) % 1e3, 3)}Z`;
  }
};
