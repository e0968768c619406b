"""The report of a run: one page for a browser, text for mail and Markdown for chat, all of the same sections.

`facts` folds what happened, `sections` says it in blocks, `text`, `markdown` and `page` render them. What is drawn
comes from `series`. Asks nothing of the world: samples, environments and the next plan are handed in.
"""
