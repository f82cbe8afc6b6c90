"""New run, the first screen: three numbered blocks, *Data → Model → Train*, and a summary with Start, always in view.

    handlers (events) ─► windows (who chose what) ─► cache (what was found out)
          └─► page (components, and what they show) ─► data · model · train · plan ─► view (one state)

Every event sends all fields; the page is the state (``Form``). An edit is answered twice: at once by arithmetic over
what is known, and then, where it touches rows or model, with what had to be looked up.
"""
