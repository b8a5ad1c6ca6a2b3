"""The secure sum: the coordinator learns the sum of the parties' vectors, and no single vector.

After Bonawitz et al. (2017) and Bell et al. (2020). Read `terms.py` (what both sides compute alike), `site.py` (what a
site does) and `coordinator.py` (what the coordinator does), in this order; `proof.md` says why no vector is opened.
`comity.crypto` has the pseudorandom `masks`, the secret sharing (`shamir`), and how many `share_holders` a party needs.

Masks      Of two parties with a *pair seed*, one adds a mask to its vector and the other subtracts it, so pair masks
           cancel in the sum of all. A party masks in the reply with which it contributes.
Whole sums Where the study tolerates no drop-outs, a sum is of all its parties: pair masks are all that it needs, and
           it is opened as soon as all parties have contributed. What follows is for sums that tolerate drop-outs.
Self masks A party adds a *self mask* too. It protects a vector that arrives after its party was counted as lost and its
           pair masks were recovered.
Shares     Each party picks share holders at random. For each sum it gives every holder a Shamir share of the seed of
           its self mask, and a Shamir share of a key. Under that key it locks its pair seeds of that sum, its *recovery
           seeds*, and leaves them with the coordinator.
Opening    For each survivor, the holders give their shares of the self mask. For each lost party they give their shares
           of the key, and the coordinator removes the pair masks that survivors made with it.

    set-up, once per group    advertise   each of many parties picks its share holders, by its own randomness; few
                                          parties hold shares of all
                              deal        it seals to each holder a pair seed and Shamir shares of its secrets
                              meet        it opens what was dealt to it, and locks its recovery seeds of each sum
                              enlist      it signs the one list of members
                              seat        it checks its holders' signatures on that list
    for each sum              the method's own step: vector + self mask ± pair masks
                              agree       each survivor signs the one list of survivors; left out where all hold shares
                                          of all and no member was lost
                              unmask      given enough signatures: shares of survivors' self masks, and of the keys of
                                          lost parties' recovery seeds

A whole sum has `deal` and `meet` (and `advertise` among many), and then one round for each sum: the method's own step.

Adversary  A coordinator that reads everything, with up to `colluders` parties. It may lie about dropouts and show
           different lists to different parties (`comity.crypto.share_holders` proves that it gains nothing).
Learned    The coordinator learns the sum over the survivors. The parties learn which parties took part.
Assumes    AES is a pseudorandom permutation; HPKE (ML-KEM-768 + X25519) and Ed25519 are secure under the pinned keys;
           the colluders were fixed before the parties picked their share holders.

Why no vector is opened
    - For one party and one sum, a site gives a share of the self mask or of the recovery key, never both. Seeds, self
      masks and recovery keys of different sums are independent, so the rule need not reach across sums.
    - The threshold is so high that a coordinator can't collect enough shares of both kinds by showing different lists
      to different parties.
    - A site answers `enlist` and `agree` once for each label, so it signs one list of each kind. Opening for all
      members takes the place of signing a list of survivors: a site does one or the other.
    - A party accepts a list only if a quorum of its own share holders are on it and signed it. So it never masks for a
      list on which it stands alone, and never opens one.
    - Seeds and shares are sealed to keys that are deleted with the run: pinned keys that are stolen later open no
      recorded masks.

The parties of one source form a *sum group*. Each group of a run has its own set-up: masks, share holders, lists and
thresholds. Parties outside of it neither hold shares for it nor count as survivors whose noise is relied on.
"""
