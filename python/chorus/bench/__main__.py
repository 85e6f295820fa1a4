from chorus.bench.command import main

main()  # in another module, so that the ranks' processes can import their functions
