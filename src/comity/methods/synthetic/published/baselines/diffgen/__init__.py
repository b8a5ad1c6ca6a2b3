"""DiffGen (Mohammed, Chen, Fung, Yu 2011): records generalised along taxonomies, counted with noise and drawn again."""
