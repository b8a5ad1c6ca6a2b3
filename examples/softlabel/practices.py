"""Eighty practices with twenty visits each vote on public records. Each practice is protected as a whole."""

import comity
from comity.data import clinic_schema, clinics, public_cohort

practices = clinics(80, 20)
method = comity.SoftLabel(clinic_schema("readmitted"), auxiliary=public_cohort(300), sizes=20)
result = method.simulate(practices, epsilon=3, delta=1e-5, seed=7)

print(result.guarantee)
print(result.model.predict_proba(public_cohort(3)))
