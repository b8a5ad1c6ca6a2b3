"""Five hospitals learn one model of readmission; each compares it with what it would have alone."""

import pandas as pd

import comity
from comity.data import clinic_schema, clinics

frames = clinics(5, 300)
test = pd.concat(clinics(4, 250, "new visits").values(), ignore_index=True)  # visits that no hospital has seen

method = comity.Averaging(clinic_schema("readmitted"), sizes=300)
print(method.plan(list(frames), epsilon=1, delta=1e-6))

result = method.simulate(frames, epsilon=1, delta=1e-6, seed=7, test=test)
print(f"joint model: wrong on {result.error:.1%} of new visits")
for level in result.baselines:
    print(f"{level.name}: {level.error:.1%}")
