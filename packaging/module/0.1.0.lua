-- Lmod: torchbridge/0.1.0.lua in a folder of MODULEPATH.
help([[Starts distributed PyTorch programs by Slurm, OpenMPI and MPICH as torchrun does. man torchbridge]])
whatis("Name: torchbridge")
whatis("Version: 0.1.0")
whatis("Description: torchrun-grade launching of distributed PyTorch programs")
conflict("torchbridge")
local root = "/apps/torchbridge/0.1.0"
prepend_path("PATH", pathJoin(root, "bin"))
prepend_path("MANPATH", pathJoin(root, "share/man"))
prepend_path("FPATH", pathJoin(root, "share/zsh/site-functions"))
prepend_path("XDG_DATA_DIRS", pathJoin(root, "share"))
prepend_path("CMAKE_PREFIX_PATH", root)
