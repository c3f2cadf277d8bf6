# aarch64.cmake -- builds for 64-bit Arm on another machine, and runs its tests there under qemu. `make arm-check` does so with the
# kernel tests, and shows how CMAKE_SYSROOT is filled:
#   cmake -S . -B build-arm -DCMAKE_TOOLCHAIN_FILE=tools/aarch64.cmake -DCMAKE_SYSROOT=/path/to/arm64
# Needs gcc-aarch64-linux-gnu and qemu-user-static; CMAKE_SYSROOT holds the -dev packages of tools/deps.sh (build, test) for
# arm64, unpacked. ctest runs the tests; those that start the program itself want qemu in binfmt_misc, and QEMU_LD_PREFIX.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-L;${CMAKE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
