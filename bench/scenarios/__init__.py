"""One file per scenario. Rounds of subject and baseline alternate, so that noise hits both alike."""
