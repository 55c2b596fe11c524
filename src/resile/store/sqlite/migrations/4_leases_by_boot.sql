-- Leases expire by the clock that counts from the boot; those of an older version (0) by the wall clock.
ALTER TABLE leases ADD COLUMN expires_boot_seconds REAL NOT NULL DEFAULT 0;
