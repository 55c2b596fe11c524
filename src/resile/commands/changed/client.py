"""The commands of `Client` about changes. They read the files of this machine, so a server does not offer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resile.commands.documents.changes import Changes
    from resile.commands.run import EngineListener, RunOutcome
    from resile.commands.start.call import Given, ResourceLimits, RunCall
    from resile.commands.store_handle import StoreHandle
    from resile.executors.local.prestart import Prestarted


class ChangeCommands:
    """The commands on one store."""

    _stores: StoreHandle

    def changes(self, run: int, inputs: Given, *, force: bool = False) -> Changes:
        """List the steps of a run that changed since they ran, by the file as it is now."""
        from resile.commands.changed.rerun import preview_rerun

        return preview_rerun(self._stores.read(), run, inputs, force=force)

    def rerun_changed(
        self,
        run: int,
        limits: ResourceLimits,
        listener: EngineListener,
        launcher: Prestarted | None = None,
        *,
        inputs: Given | None = None,
        force: bool = False,
    ) -> RunOutcome | None:
        """Run the changed steps in the next epoch of a run; None if nothing changed."""
        from resile.commands.changed.rerun import rerun_changed
        from resile.commands.start.call import Given

        return rerun_changed(self._stores.write(), run, limits, listener, launcher, inputs or Given(), force=force)

    def cached_changes(self, call: RunCall) -> Changes:
        """List the steps that a run with `cached` would run."""
        from resile.commands.changed.cached import preview_cached

        return preview_cached(self._stores, call)
