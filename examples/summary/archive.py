"""Three archives hold handwritten digits. A reader with a few even digits gets records that look like its own."""

import comity
from comity.data.public.digits import digit_pictures, digit_schema

even, odd = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
frames = {
    "ashford": digit_pictures(400, "ashford", digits=even),  # this archive has what the reader wants
    "birkdale": digit_pictures(600, "birkdale", digits=odd),
    "calder": digit_pictures(600, "calder", digits=odd),
    "reader": digit_pictures(200, "reader", digits=even),
}
public = digit_pictures(150, "public").drop(columns="digit")
method = comity.Summary(digit_schema(), records=30, auxiliary=public)
result = method.simulate(frames, consumer="reader", epsilon=3, delta=1e-5, seed=7)

print(result.presented.bought.quotas)  # how many records came from each archive
print(result.presented.frame["digit"].value_counts())
