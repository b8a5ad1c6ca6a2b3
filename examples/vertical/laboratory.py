"""A hospital and a laboratory hold different columns of the same patients, and fit one regression over both."""

import pandas as pd

import comity
from comity.data import clinic_schema, clinics

schema = clinic_schema("readmitted")
patients = pd.concat(clinics(3, 300).values(), ignore_index=True).drop_duplicates("patient")
measured = ["lactate", "creatinine", "saturation"]
known = [column.name for column in schema.columns if column.name not in measured] + ["readmitted"]

method = comity.Vertical(
    schema, columns={"hospital": known, "laboratory": measured}, products="dealer", solver="quadratic"
)
owners = {
    "hospital": patients[["patient", *known]],
    "laboratory": patients[["patient", *measured]].iloc[::-1],  # another order: rows are matched by patient
}
result = method.simulate(owners, epsilon=3, delta=1e-6, seed=7)
print(result.model)
print(result.guarantee)
