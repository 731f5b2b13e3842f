#include <dlfcn.h>

#include <filesystem>

#include "execute/built.hpp"
#include "execute/module.hpp"

namespace fsdplan {
namespace {

/// Beside the program, as it is built, or where it is installed.
std::filesystem::path module_path() {
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::filesystem::path built = folder / mpi_module;
    std::error_code ignored;
    return std::filesystem::exists(built, ignored) ? built : folder / installed_modules / mpi_module;
}

std::unique_ptr<Backend> load(const std::filesystem::path& path) {
    // Open MPI finds its components among global symbols. The module stays: a thread of it may still run.
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) {
        throw Error(ErrorKind::machine, "dlopen", dlerror());
    }
    void* symbol = dlsym(module, "fsdplan_open_backend");
    if (symbol == nullptr) {
        throw Error(ErrorKind::machine, "dlsym", dlerror());
    }
    const char* reason = nullptr;
    std::unique_ptr<Backend> backend(reinterpret_cast<OpenBackend>(symbol)(&reason));
    if (backend == nullptr) {
        throw Error(ErrorKind::machine, "MPI", reason);
    }
    return backend;
}

}  // namespace

std::unique_ptr<Backend> open_backend(std::string_view name) {
    if (name == "nccl") {
        throw Error(ErrorKind::machine, "--backend nccl", "this version has no CUDA backend yet");
    }
    if (name != "mpi") {
        throw Error(ErrorKind::input, "--backend", "expected mpi, found \"" + std::string(name) + '"');
    }
    if (!has_mpi) {
        throw Error(ErrorKind::machine, "--backend mpi",
                    std::string("this fsdplan has no MPI: ") + mpi_state);
    }
    return load(module_path());
}

}  // namespace fsdplan
