"""Six hospitals publish one dataset. Tables and regressions are made from the same release at no further cost."""

from dataclasses import replace

import comity
from comity.data import clinic_schema, clinics

schema = replace(clinic_schema("readmitted"), identifier=None)
frames = clinics(6, 400)
result = comity.Synthetic(schema, sizes=400).simulate(frames, epsilon=1, delta=1e-6, seed=7)

dataset = result.dataset
print(dataset.frame.head())
print(dataset.table_one(by="sex").frame.head())
print(dataset.regression("age", on=["readmitted", "triage"]).frame)
