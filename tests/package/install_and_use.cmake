# cmake -DBUILD=<build folder> -DWORK=<scratch folder> -DVERSION=… -DTOOLCHAIN=<cmake arguments> -P install_and_use.cmake
#
# Installs fsdplan below WORK, builds the project in consumer/ against it and runs both programs.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DFSDPLAN_EXPECTED_VERSION=${VERSION} ${TOOLCHAIN})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
run(${WORK}/prefix/bin/fsdplan --version)
