"""`gamma_init_` and `gamma_table`: the gamma-scaled initialisation of modules of other libraries."""
