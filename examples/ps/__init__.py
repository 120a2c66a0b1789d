from examples.need import need_extra

need_extra("numpy", "sklearn")
