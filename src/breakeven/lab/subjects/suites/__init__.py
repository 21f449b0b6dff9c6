"""Built-in subjects: suites `fusion`, `compute` and `models`, each at three sizes.

Data goes one way: `scales`, `draw` and `weights` give sizes, inputs and parameters; `pointwise`,
`normalization`, `losses`, `adam`, `attention` and `networks/` hold the programs; `fusion`,
`compute` and `models` are the suites, each with its table `SUBJECTS` of short name -> factory.
"""
