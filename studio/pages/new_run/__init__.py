"""New run, the first screen: three numbered blocks, *Data → Model → Train*, and a summary with Start, always in view.

    handlers (events) ─► windows (who chose what) ─► cache (what is known)
          └─► page (components, and what they show) ─► data · model · train · plan ─► view (one state)

Every event sends all fields; the page is the state (``Form``). An edit is answered at once from what is known, and
again, where it touches rows or model, after looking that up.
"""
